"""What the README shows is run."""

import re
import shlex
from pathlib import Path

import pytest

from upside import cli

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_python_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "policies.png").stat().st_size > 10_000


COMMANDS = [line for b in blocks("sh") for line in b.splitlines() if line.startswith("upside ")]


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.split()[1] != "train"])
def test_commands_of_the_readme_are_understood(line):
    """They parse, and those that need a run say so: the first is trained elsewhere (test_cli)."""
    arguments = shlex.split(line, comments=True)[1:]
    assert cli.main(arguments) == (0 if len(arguments) == 1 else 2)


def test_there_is_a_command_to_train():
    assert any(c.startswith("upside train upside --env bottleneck-maze") for c in COMMANDS)


def test_links_of_the_docs_exist():
    for page in [README, *(README.parent / "docs").glob("*.md"), README.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
