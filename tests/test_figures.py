"""What the figures promise, on a run made by hand whose every policy, bucket and q are known."""

import dataclasses
import subprocess
import sys
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from upside import figures, methods, runs
from upside.engine.method import Method
from upside.figures import colors, compare, goal
from upside.figures.maps import DIFFUSING, MISSED, SKILL, UNREACHABLE, bucket_kinds
from upside.figures.policies import frame_times
from upside.figures.scene import Scene, thousands
from upside.models import discriminator as discriminators
from upside.nets import MLP, Actor, stack
from upside.run import Rollouts, Run
from upside.skills.tree import Tree
from upside.types import Space, Step, UserError

EAST, NORTH = (1.0, 0.0), (0.0, 1.0)
HEADINGS = [(0.0, 0.0), EAST, NORTH, NORTH]  # the last starts where the first has led
ENDS = np.array([[2.5, 2.5], [12.5, 2.5], [2.5, 12.5], [12.5, 12.5]], np.float32)
MAPS = [name for name, entry in figures.FIGURES.items() if entry.features]


def skill(heading):
    """A skill that walks at full speed in one direction, wherever it is."""
    mlp = MLP((2, 2), np.random.default_rng(0))
    object.__setattr__(mlp, "weights", (jnp.zeros((2, 2)),))
    object.__setattr__(mlp, "biases", (30.0 * jnp.asarray(heading, jnp.float32),))
    return Actor(mlp, jnp.zeros(2), jnp.ones(2))


def nearest(places):
    """A discriminator for which the nearest place is the likeliest: log q ∝ 2 c·s - |c|²."""
    places = jnp.asarray(places)
    mlp = MLP((2, len(places)), np.random.default_rng(0))
    object.__setattr__(mlp, "weights", (2 * places.T,))
    object.__setattr__(mlp, "biases", (-jnp.sum(places**2, axis=1),))
    return discriminators.State(mlp, None, jnp.zeros(2), jnp.ones(2))


def history():
    """Two expansions: policies 1 and 2, then 3; nothing is in training in between."""
    keys = ("interactions", "policies", "buckets", "discriminability")
    rows = [
        (100, 0, 1, []),
        (500, 0, 1, [0.2, 0.6]),
        (900, 0, 1, [0.9, 1.0]),
        (1000, 2, 5, []),
        (2000, 2, 5, [0.7]),
        (2500, 3, 7, []),
    ]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def handmade(env: Any = None, places=ENDS) -> Run:
    config = runs.configure("upside", methods.get("upside"), "u-maze", 3, 3000)
    tree = Tree()
    for parent, born in ((0, 1000), (0, 1000), (1, 2500)):
        tree.add(parent, 0.9, born)
    return Run(
        config=config,
        env=config.environment() if env is None else env,
        method=Method(),
        tree=tree,
        actors=stack([skill(heading) for heading in HEADINGS]),
        buffers=np.zeros((4, 100, 2), np.float32),
        counts=np.full(4, 100, np.int32),
        judge=nearest(places),
        summary={"interactions": 3000},
        history=history(),
    )


class Open(NamedTuple):
    """An environment without walls that knows nothing of what can be reached."""

    features_kept: int = 2
    name = "open"
    observation_size = action_size = 2
    deterministic = True

    @property
    def space(self):
        n = self.features_kept
        return Space((-20.0,) * n, (20.0,) * n, (8,) * n)

    def reset(self, key):
        return jnp.zeros(2), jnp.zeros(2)

    def step(self, state, action, key):
        return Step(state + action, state + action, jnp.array(False), jnp.array(False))

    def features(self, obs):
        return obs[: self.features_kept]

    def reachable(self):
        return None


@pytest.fixture(scope="module")
def run():
    return handmade()


@pytest.fixture(scope="module")
def open_run():
    ends = ENDS - ENDS[0]
    pairs = zip(ends[[0, 0, 1]], ends[1:], strict=True)
    steps = [np.linspace(begin, end, 11, dtype=np.float32) for begin, end in pairs]
    directed = [ends[:1], steps[0], steps[1], np.concatenate([steps[0], steps[2][1:]])]
    return known(handmade(Open(), ends), directed, ends)


def known(run, directed, centers):
    """The run with rollouts that are written down, since compiling them takes seconds."""
    noise = np.random.default_rng(0).normal(0.0, 1.0, (len(centers), 10, 10, centers.shape[1]))
    rollouts = Rollouts(directed, (centers[:, None, None] + noise).astype(np.float32))

    class Known(Run):
        def rollouts(self, episodes=10, seed=0):
            return rollouts

    given = [field.name for field in dataclasses.fields(run) if field.init]
    return Known(**{name: getattr(run, name) for name in given})


def artists(where, prefix):
    """Everything drawn whose id begins with `prefix`, in the order of drawing."""
    return where.findobj(lambda artist: str(artist.get_gid()).startswith(prefix))


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text)]


# ---------------------------------------------------------------- registry


def test_names_are_the_registry():
    assert figures.names() == ["policies", "growth", "curves", "discriminator", "coverage"]
    assert all(entry.about for entry in figures.FIGURES.values())


def test_unknown_name_names_the_nearest(run):
    with pytest.raises(UserError, match="unknown figure 'polices': did you mean policies"):
        figures.draw("polices", run)


def test_importing_the_registry_does_not_import_matplotlib():
    code = "import sys, upside.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_draw_all_saves_every_figure(run, tmp_path):
    from PIL import Image

    paths = figures.draw_all(run, tmp_path / "new" / "figures")
    assert [path.name for path in paths] == [f"{name}.png" for name in figures.names()]
    for path in paths:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert picture.info["dpi"] == pytest.approx((150, 150), abs=0.1)
            assert len(set(picture.convert("L").resize((60, 60)).tobytes())) > 5, "blank"
    assert "matplotlib.pyplot" not in sys.modules, "pyplot is global state"


@pytest.mark.parametrize("name", ["x.doc", "x"])
def test_a_suffix_that_cannot_be_saved_is_refused(run, tmp_path, name):
    with pytest.raises(UserError, match=r"end the name in \.png"):
        figures.draw("curves", run, tmp_path / name)


def test_a_path_that_cannot_be_written_is_the_users_to_mend(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*choose another path"):
        figures.draw("curves", run, tmp_path / "file" / "x.png")


# ---------------------------------------------------------------- policies, growth


def test_policies_are_lines_from_their_parents_end_to_their_own(run):
    figure = figures.draw("policies", run)
    lines = artists(figure, "skill-")
    assert [line.get_gid() for line in lines] == ["skill-1", "skill-2", "skill-3"]
    for line, begin, end in zip(lines, ENDS[[0, 0, 1]], ENDS[1:], strict=True):
        assert line.get_xydata()[[0, -1]] == pytest.approx(np.stack([begin, end]), abs=1e-3)
    assert len(artists(figure, "diffusing-")) == len(run), "the root diffuses too"


def test_policies_show_walls_blocks_start_and_numbers(run):
    figure = figures.draw("policies", run)
    (walls,), (block,), (start,) = (artists(figure, n) for n in ("walls", "block", "start"))
    assert len(walls.get_segments()) == len(run.env.layout.barriers)
    assert block.get_bbox().bounds == pytest.approx((0.0, 15.0, 35.0, 20.0))
    assert start.get_xydata()[0] == pytest.approx(run.env.layout.start)
    assert [text.get_text() for text in artists(figure, "number-")] == ["0", "1", "2", "3"]
    (ax,) = figure.axes
    assert ax.get_aspect() == 1.0
    assert "maze units" in ax.get_xlabel()
    wanted = "upside on u-maze, seed 3\n7 of 72 buckets covered, 3 policies, 3k interactions"
    assert ax.get_title() == wanted


def test_growth_only_adds(run):
    figure = figures.draw("growth", run)
    seen = [{line.get_gid() for line in artists(ax, "skill-")} for ax in figure.axes]
    assert seen == [set(), {"skill-1", "skill-2"}, {"skill-1", "skill-2", "skill-3"}]
    assert [ax.get_title() for ax in figure.axes] == [
        "0 policies, 0 interactions",
        "2 policies, 1k interactions",
        "3 policies, 2.5k interactions",
    ]
    assert all(len(artists(ax, "walls")) == 1 for ax in figure.axes)


def test_a_long_growth_is_shown_in_eight_frames():
    times = frame_times(np.repeat(np.arange(50) * 100, 3))
    assert len(times) == 8
    assert times == sorted(set(times))
    assert (times[0], times[-1]) == (0, 4900)


def test_a_policy_has_one_colour_in_all_figures(run):
    scene = Scene(run)
    for name in ("policies", "growth"):
        for line in artists(figures.draw(name, run), "skill-"):
            z = int(line.get_gid().removeprefix("skill-"))
            assert to_rgb(line.get_color()) == pytest.approx(scene.colors[z])


def test_neighbouring_policies_have_distinct_colours():
    places = np.random.default_rng(0).uniform(0, 50, (100, 2))
    chosen = colors.palette()[colors.assign(places, 50 * 2**0.5)]
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    contrast = np.linalg.norm(chosen[:, None] - chosen, axis=-1)
    near = np.argsort(distance, axis=1)[:, 1:4]
    assert np.take_along_axis(contrast, near, axis=1).min() > 0.07


def test_later_policies_do_not_recolour_earlier_ones():
    places = np.random.default_rng(1).uniform(0, 50, (40, 2))
    assert colors.assign(places, 70.0)[:25] == colors.assign(places[:25], 70.0)


# ---------------------------------------------------------------- maps, curves


def test_discriminator_colours_each_place_by_its_likeliest_policy(run):
    figure = figures.draw("discriminator", run)
    (image,) = artists(figure, "map")
    pixels, scene = np.asarray(image.get_array()), Scene(run)
    assert image.get_extent() == [0, 50, 0, 50]
    for (x, y), color in zip(ENDS, scene.colors, strict=True):
        at = pixels[int(y / 50 * len(pixels)), int(x / 50 * len(pixels))]
        assert at[:3] == pytest.approx(color)
        assert at[3] > 0.8, "certain, hence strong"
    border = pixels[int(7.5 / 50 * len(pixels)), int(7.5 / 50 * len(pixels))]
    assert border[3] < 0.8, "q is undecided between four policies, hence pale"
    assert pixels[len(pixels) // 2, 10, 3] == 0.0, "solid blocks stay blank"
    assert len(artists(figure, "walls")) == 1


def test_coverage_tells_kinds_of_buckets_apart(run):
    scene = Scene(run)
    kinds = bucket_kinds(scene)
    by_skills = {(0, 0), (1, 0), (2, 0), (0, 1), (0, 2), (2, 1), (2, 2)}
    around = {tuple(cell) for cell in (scene.rollouts.diffusing.reshape(-1, 2) // 5).astype(int)}
    assert {tuple(cell) for cell in np.argwhere(kinds == SKILL)} == by_skills
    assert {tuple(cell) for cell in np.argwhere(kinds == DIFFUSING)} == around - by_skills
    assert kinds[9, 9] == MISSED
    assert kinds[0, 4] == kinds[5, 5] == UNREACHABLE
    figure = figures.draw("coverage", run)
    counts = [int(t.rsplit(": ")[1]) for t in texts(figure) if t[-1:].isdigit() and ": " in t]
    assert counts == [int((kinds == kind).sum()) for kind in range(4)]
    assert sum(counts) == 100


def test_curves_show_the_history(run):
    figure = figures.draw("curves", run)

    def y(name):
        (line,) = artists(figure, name)
        assert line.get_xdata()[-1] in (1.0, 2.5)  # thousands; η's line spans the axes
        return line.get_ydata()

    assert y("consolidated").tolist() == [0, 0, 0, 2, 2, 3]
    assert y("active").tolist() == [0, 2, 2, 0, 1, 0]
    assert y("buckets").tolist() == [1, 1, 1, 5, 5, 7]
    nan = np.nan
    assert y("mean") == pytest.approx([nan, 0.4, 0.95, nan, 0.7, nan], nan_ok=True)
    assert y("minimum") == pytest.approx([nan, 0.2, 0.9, nan, 0.7, nan], nan_ok=True)
    assert list(y("eta")) == [0.8, 0.8]
    assert "thousands" in figure.axes[-1].get_xlabel()


def test_curves_of_long_runs_are_averaged(run):
    long = [{**history()[1], "interactions": 10 * i} for i in range(1, 2001)]
    (mean,) = artists(figures.draw("curves", dataclasses.replace(run, history=long)), "mean")
    assert len(mean.get_ydata()) == 100
    assert mean.get_ydata() == pytest.approx(0.4)


def test_curves_need_a_history(run):
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        figures.draw("curves", dataclasses.replace(run, history=[]))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (999, "999"),
        (8000, "8k"),
        (149_810, "150k"),
        (999_900, "1M"),
        (1_250_000, "1.25M"),
    ],
)
def test_interactions_are_said_in_thousands(number, said):
    assert thousands(number) == said


# ---------------------------------------------------------------- other runs


def test_a_root_alone_can_be_drawn(run):
    root = dataclasses.replace(run, tree=Tree(), judge=nearest(ENDS[:1]), history=history()[:1])
    root = known(root, [ENDS[:1]], ENDS[:1])
    for name in figures.names():
        figure = figures.draw(name, root)
        assert not artists(figure, "skill-")


def test_other_planes_are_drawn_as_a_box_without_walls(open_run, tmp_path):
    for name in MAPS:
        figure = figures.draw(name, open_run, tmp_path / "x.png")
        assert artists(figure, "box")
        assert not artists(figure, "walls")
    assert name == "coverage"
    assert "not covered: " in " ".join(texts(figure))
    assert "reachable" not in " ".join(texts(figure)), "nobody knows"


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_three_dimensions_are_refused(name):
    with pytest.raises(UserError, match=r"features, but open has 3: choose from: curves$"):
        figures.draw(name, handmade(Open(3)))


@pytest.fixture(scope="module")
def line_run():
    ends = (ENDS - ENDS[0])[:, :1]
    steps = [np.linspace(0.0, end, 11, dtype=np.float32) for end in ends]
    return known(handmade(Open(1), ends), [ends[:1], *steps[1:]], ends)


def test_a_single_feature_is_drawn_over_the_steps_of_an_episode(line_run):
    figure = figures.draw("policies", line_run)
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps of the episode", "feature 1")
    (skill,), (dots,) = artists(figure, "skill-1"), artists(figure, "diffusing-1")
    np.testing.assert_allclose(skill.get_xdata(), np.arange(11))
    assert set(dots.get_xdata()) == set(range(11, 21))


def test_draw_all_leaves_out_what_cannot_be_drawn(line_run, tmp_path):
    drawn = [path.stem for path in figures.draw_all(line_run, tmp_path)]
    assert drawn == ["policies", "growth", "curves"]


# ---------------------------------------------------------------- several runs in one picture


def test_the_evolution_of_a_tree_has_a_frame_for_every_time_and_two_curves_beside_them(run):
    left, right = compare.evolution(run).subfigs
    born = np.array([node.born for node in run.tree.nodes])
    assert len(right.axes) == len(frame_times(born, 9))
    assert right.axes[0].get_title().startswith("A: 0 policies")
    assert [ax.get_ylabel().split()[0] for ax in left.axes] == ["policies", "discriminability"]


def test_runs_side_by_side_say_what_each_covers(run):
    for picture in (compare.policies, compare.discriminators):
        figure = picture({"first": run, "second": run})
        titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
        assert [title.splitlines()[0] for title in titles] == ["first", "second"]
        assert all("buckets" in title for title in titles)


def test_discriminability_over_training_is_the_mean_over_policies_and_seeds(run):
    (ax,) = compare.discriminability({"two seeds": [run, run]}).axes
    x, y = ax.lines[0].get_data()
    assert (x[0], x[-1]) == (500 / 1e6, 2000 / 1e6)
    assert (y[0], y[-1]) == (pytest.approx(0.4), pytest.approx(0.7))


def test_a_region_that_nothing_reaches_says_so_in_heat_maps(run):
    values, places = np.array([[0.5, 0.0], [np.nan, 0.001]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    figure = goal.heat_maps({"one": values, "two": values}, run, "goals", places)
    first, second, bar = figure.axes
    assert [text.get_text() for text in first.texts] == ["0.50", "never", "-", "< 0.01"]
    (dots,) = [line for line in first.lines if line.get_gid() == "goals"]
    assert np.array_equal(dots.get_xydata(), places)
    assert second.get_title() == "two\nmean 0.17", "regions without goals do not count"
    assert "mean over runs" in bar.get_ylabel()


def test_learning_curves_show_every_run_and_their_mean(run):
    at = np.array([0.0, 1000.0])
    runs = [np.stack([at, [0.0, end]]) for end in (0.2, 0.4)]
    (ax,) = goal.learning_curves({"row": runs}, "goals").axes
    assert [line.get_ydata()[-1] for line in ax.lines] == pytest.approx([0.2, 0.4, 0.3])
    assert ax.lines[-1].get_xdata()[-1] == 1, "thousands"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["row"]


def test_a_way_is_a_line_with_a_dot_where_each_skill_hands_over(run):
    T = run.method.plan.T
    way = np.stack([np.linspace(1, 9, 2 * T + 6), np.full(2 * T + 6, 2.0)], axis=1)
    figure = goal.way(run, np.array([9.0, 2.0]), 1.0, {"before, best episode": way}, "one", 2)
    (ax,) = figure.axes
    (drawn,) = [line for line in ax.lines if line.get_gid() == "before, best episode"]
    assert np.array_equal(drawn.get_xydata(), way)
    dots = ax.lines[ax.lines.index(drawn) + 1].get_xydata()
    assert np.array_equal(dots, way[: 2 * T + 1 : T])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["before, best episode", "goal"]
