"""Dependencies point one way, as LAYERS says: held by reading every import of the package."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "upside"

LAYERS = [
    {"types", "version"},
    {"envs", "nets"},
    {"learners", "models", "skills", "rewards"},
    {"engine"},
    {"methods", "runs", "run", "session", "evaluate"},
    {"downstream"},
    {"figures", "progress", "bench", "timing", "experiments", "goals", "film", "arguments"},
    {"cli"},
    {"", "__main__"},  # the package itself: what users import
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

UPWARDS = {
    ("upside.run", "upside.figures"),
    ("upside.run", "upside.film"),
    ("upside.run", "upside.downstream"),
    ("upside.run", "upside.downstream.tasks"),
    ("upside.run", "upside.downstream.reach"),
}
"""`run.plot`, `run.film` and `run.reach` ask for figures and tasks when called, so that nothing else has to."""

OPTIONAL = {"gymnasium", "matplotlib", "tensorboardX", "torch"}


class Import(NamedTuple):
    """One name that a module imports."""

    target: str
    when: str
    """When it is executed: "now" (with the module), "called" (in a function), "never" (for types)."""


def imports(source: str, module: str, is_package: bool, modules: set[str]) -> set[Import]:
    """Every import of a module, with `from x import y` as x.y where that is a module of ours."""
    found = set()

    def visit(node: ast.AST, when: str) -> None:
        if isinstance(node, ast.Import):
            found.update(Import(alias.name, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*above, base]).rstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                is_module = full in modules or (base == "upside" and alias.name in LEVEL)
                found.add(Import(full if is_module else base, when))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, "never")
            for child in node.orelse:
                visit(child, when)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                visit(child, "called" if inside and when == "now" else when)

    visit(ast.parse(source), "now")
    return found


def read() -> dict[str, set[Import]]:
    """The imports of every module of the package."""
    files = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["upside", *path.relative_to(PACKAGE).with_suffix("").parts]
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {
        module: imports(path.read_text(), module, path.name == "__init__.py", set(files))
        for module, path in files.items()
    }


MODULES = read()


def room(module: str) -> str:
    """`upside.engine.round` is in the room `engine`."""
    return [*module.split("."), ""][1]


def ours(module: str) -> set[Import]:
    return {i for i in MODULES.get(module, ()) if i.target.split(".")[0] == "upside"}


def reached(module: str, allowed: tuple[str, ...] = ("now", "called")) -> set[str]:
    """Every module of ours that `module` imports, itself or through others."""
    seen, todo = set(), [module]
    while todo:
        for found in ours(todo.pop()):
            if found.when in allowed and found.target not in seen:
                seen.add(found.target)
                todo.append(found.target)
    return seen


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import upside.nets", ("upside.nets", "now")),
        ("from upside import methods", ("upside.methods", "now")),
        ("from upside.nets import Actor", ("upside.nets", "now")),
        ("from . import td3", ("upside.engine.td3", "now")),
        ("from .. import methods", ("upside.methods", "now")),
        ("from ..nets import Actor", ("upside.nets", "now")),
        ("def f():\n    from upside.nets import Actor", ("upside.nets", "called")),
        ("class A:\n    import pickle", ("pickle", "now")),
        ("try:\n    import torch\nexcept ImportError:\n    pass", ("torch", "now")),
        ("if TYPE_CHECKING:\n    from upside.nets import Actor", ("upside.nets", "never")),
    ],
)
def test_the_reader_sees_every_kind_of_import(source, expected):
    known = {"upside.nets", "upside.methods", "upside.engine.td3"}
    assert imports(source, "upside.engine.round", False, known) == {Import(*expected)}


def test_the_whole_package_is_read():
    assert {"upside", "upside.engine.discovery", "upside.learners.td3", "upside.cli"} <= set(
        MODULES
    )
    assert "upside.skills.tree" in {i.target for i in MODULES["upside.engine.discovery"]}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_place(module):
    assert room(module) in LEVEL, f"say in LAYERS where {module} belongs"


@pytest.mark.parametrize("module", MODULES)
def test_dependencies_point_one_way(module):
    upwards = {
        found.target
        for found in ours(module)
        if found.when != "never" and LEVEL[room(found.target)] > LEVEL[room(module)]
    }
    assert not {(module, target) for target in upwards} - UPWARDS
    for source, target in UPWARDS & {(module, target) for target in upwards}:
        assert Import(target, "now") not in ours(source), "upwards only when called"


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_itself_through_others(module):
    assert module not in reached(module, ("now",))


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) == "engine"])
def test_the_engine_does_not_know_the_methods(module):
    assert "upside.methods" not in {i.target for i in ours(module)} | reached(module)


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) == "figures"])
def test_figures_read_run_directories_and_cannot_train(module):
    training = {"upside.engine.discovery", "upside.engine.train", "upside.session"}
    assert not training & ({i.target for i in ours(module)} | reached(module))


def test_nothing_is_pickled():
    """What is loaded from a run directory is data, not a program."""
    unsafe = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
    roots = {m: {i.target.split(".")[0] for i in found} for m, found in MODULES.items()}
    assert not {m: unsafe & found for m, found in roots.items() if unsafe & found}


def test_optional_packages_are_not_imported_until_they_are_needed():
    code = (
        "import sys, upside, upside.run, upside.session;"
        f"print(sorted({OPTIONAL!r} & {{m.split('.')[0] for m in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", MODULES)
def test_optional_packages_are_imported_where_they_are_needed_only(module):
    """At import time: figures draw, `envs.gym` is for Gymnasium; everybody else asks when called."""
    needed = {"figures": {"matplotlib"}, "bench": {"torch", "gymnasium", "matplotlib"}}
    allowed = {"gymnasium"} if module == "upside.envs.gym" else needed.get(room(module), set())
    now = {i.target.split(".")[0] for i in MODULES[module] if i.when == "now"}
    assert now & OPTIONAL <= allowed
