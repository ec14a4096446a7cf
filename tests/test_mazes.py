"""What a maze promises: no wall is crossed, whatever the move; drawn mazes say what is wrong."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upside import envs
from upside.envs.layouts import BUILT_IN, RADIUS, Layout, load, parse_text
from upside.envs.maze import HAIR, Maze, move
from upside.types import Environment, UserError

REST = RADIUS + HAIR  # how far from a wall a stopped agent rests
SIDE, CAPACITY, AGENTS = 20.0, 16, 64
BORDER = ((0, 0, SIDE, 0), (SIDE, 0, SIDE, SIDE), (0, SIDE, SIDE, SIDE), (0, 0, 0, SIDE))
EXAMPLES = sorted((Path(__file__).parents[1] / "examples" / "mazes").glob("*.txt"))

moves = jax.jit(jax.vmap(move, in_axes=(0, 0, None)))


@jax.jit
def walk(positions, shifts, walls):
    """All positions on the way, the first included: [steps + 1, agents, 2]."""

    def step(now, shift):
        after = jax.vmap(move, in_axes=(0, 0, None))(now, shift, walls)
        return after, after

    return jnp.concatenate([positions[None], jax.lax.scan(step, positions, shifts)[1]])


def touches(old, new, walls, radius=0):
    """Whether each line old-new shares a point with each wall's box: [..., walls].

    Written apart from the code under test, by separating axes instead of entry times. It works on
    arrays of floats, and on arrays of fractions, where it is exact.
    """
    low = np.minimum(walls[:, :2], walls[:, 2:]) - radius
    high = np.maximum(walls[:, :2], walls[:, 2:]) + radius
    old, new = old[..., None, :], new[..., None, :]
    apart = np.any((np.maximum(old, new) < low) | (np.minimum(old, new) > high), axis=-1)
    shift = new - old
    sides = [
        shift[..., 0] * (y[:, 1] - old[..., 1]) - shift[..., 1] * (x[:, 0] - old[..., 0])
        for x in (low, high)
        for y in (low, high)
    ]
    left = np.all([side > 0 for side in sides], axis=0)
    right = np.all([side < 0 for side in sides], axis=0)
    return ~(apart | left | right)


def exact(values):
    """The same numbers as fractions."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, float))


coordinate = st.integers(0, int(SIDE)) | st.integers(0, 100 * int(SIDE)).map(lambda n: n / 100)
wall = st.tuples(st.booleans(), coordinate, coordinate, coordinate).map(
    lambda w: (w[1], w[2], w[1], w[3]) if w[0] else (w[2], w[1], w[3], w[1])
)
mazes = st.lists(wall, max_size=CAPACITY - 4).map(
    lambda inner: np.array([*BORDER, *inner, *BORDER * 3][:CAPACITY], np.float32)
)
"""Walls that meet, cross, overlap or shrink to a point, padded so that shapes never change."""


def scatter(walls, seed):
    """Agents anywhere, and at wall ends as near as an agent can ever be; with long shifts, some
    of them straight along an axis, some aimed at wall ends."""
    random = np.random.default_rng(seed)
    ends = walls.reshape(-1, 2)
    near = ends[random.integers(len(ends), size=4 * AGENTS)]
    near = near + random.choice([0.0, RADIUS / 2, RADIUS, REST], near.shape) * random.choice(
        [-1, 1, 1.0001], near.shape
    )
    anywhere = random.uniform(0, SIDE, (4 * AGENTS, 2))
    positions = random.permutation(np.concatenate([near, anywhere])).astype(np.float32)
    inside = np.all((positions > 0) & (positions < SIDE), axis=1)
    positions = positions[inside & ~touches(positions, positions, walls, 0.501 * RADIUS).any(1)]
    positions = positions[np.arange(AGENTS) % len(positions)]
    shifts = random.uniform(-1, 1, (AGENTS, 2)) * random.choice([0.01, 1, 20], (AGENTS, 1))
    shifts *= random.random((AGENTS, 2)) > 0.15
    aimed = random.random(AGENTS) < 0.3
    shifts[aimed] = (ends[random.integers(len(ends), size=AGENTS)] - positions)[aimed] * 1.5
    return positions, shifts.astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(mazes, st.integers(0, 2**32 - 1))
def test_no_move_touches_a_wall(walls, seed):
    positions, shifts = scatter(walls, seed)
    after = np.asarray(moves(positions, shifts, walls))
    assert not touches(exact(positions), exact(after), exact(walls)).any()


@settings(max_examples=50, deadline=None)
@given(mazes, st.integers(0, 2**32 - 1))
def test_walks_keep_their_distance_from_walls(walls, seed):
    positions, _ = scatter(walls, seed)
    shifts = np.stack([scatter(walls, seed + i)[1] for i in range(20)])
    way = np.asarray(walk(positions, shifts, walls), float)
    assert not touches(way[:-1], way[1:], walls.astype(float), 0.49 * RADIUS).any()


@settings(max_examples=40, deadline=None)
@given(mazes, st.integers(0, 2**32 - 1))
def test_walls_do_not_act_from_afar(walls, seed):
    positions, shifts = scatter(walls, seed)
    goals = positions + shifts
    free = ~touches(positions, goals, walls, 1.01 * RADIUS).any(axis=1)
    after = np.asarray(moves(positions, shifts, walls))
    np.testing.assert_allclose(after[free], goals[free], atol=1e-5)


def random_walks(maze, steps, agents, seed=0):
    """Persistent random walks from the start: they press on walls and find the gaps."""

    def step(carry, key):
        positions, drift = carry
        drift = 0.9 * drift + 0.5 * jax.random.normal(key, drift.shape)
        after = jax.vmap(maze.step, in_axes=(0, 0, None))(positions, drift, key).obs
        return (after, drift), after

    start = jnp.broadcast_to(maze.reset(jax.random.key(0))[1], (agents, 2))
    keys = jax.random.split(jax.random.key(seed), steps)
    way = jax.jit(jax.lax.scan, static_argnums=0)(step, (start, 0 * start), keys)[1]
    return np.asarray(jnp.concatenate([start[None], way]), float)


@pytest.mark.parametrize("name", [*BUILT_IN, *map(str, EXAMPLES)])
@pytest.mark.parametrize("max_step", [1.0, 12.0])
def test_long_walks_stay_in_the_maze(name, max_step):
    maze = Maze(envs.make(name).layout, max_step)
    way = random_walks(maze, steps=2000, agents=32)
    walls = np.array(maze.layout.barriers)
    for old, new in zip(np.split(way[:-1], 20), np.split(way[1:], 20), strict=True):
        assert not touches(old, new, walls, 0.49 * RADIUS).any()
    buckets = maze.space.bucket(way)
    assert buckets.min() >= 0
    assert maze.reachable()[buckets].all()
    for x0, y0, x1, y1 in maze.layout.blocks:
        inside = (way > [x0, y0]) & (way < [x1, y1])
        assert not inside.all(axis=-1).any()
    assert len(np.unique(buckets)) > 10  # the walks do go somewhere


def test_a_closed_wall_has_two_sides():
    maze = Maze(Layout("divided", 50.0, 50.0, (2.5, 2.5), walls=((25.0, 0.0, 25.0, 50.0),)), 30.0)
    assert random_walks(maze, steps=2000, agents=64)[..., 0].max() < 25 - RADIUS / 2
    assert maze.reachable().reshape(10, 10).all(axis=1).tolist() == [True] * 5 + [False] * 5
    assert maze.contains((24.9, 10.0))
    assert not maze.contains((25.0, 10.0))
    assert not maze.contains((25.1, 10.0))


@pytest.mark.parametrize(
    ("position", "action", "expected"),
    [
        ((2.5, 2.5), (0.5, -0.25), (3.0, 2.25)),  # nothing in the way
        ((2.5, 2.5), (7.0, -0.5), (3.5, 2.0)),  # actions are clipped to [-1, 1]
        ((49.5, 25.5), (1.0, 0.0), (50 - REST, 25.5)),  # head-on
        ((49.5, 25.5), (1.0, 0.5), (50 - REST, 26.0)),  # sliding: the rest of y goes on
        ((49.5, 49.5), (1.0, 0.9), (50 - REST, 50 - REST)),  # into a corner
        ((50 - REST, 25.5), (-1.0, 0.0), (49 - REST, 25.5)),  # and off again
        ((50 - RADIUS + 2e-5, 25.5), (1.0, 0.5), (50 - REST, 26.0)),  # rounded into a wall's box
        ((50 - RADIUS + 2e-5, 25.5), (-1.0, 0.5), (49 - RADIUS, 26.0)),
        ((24.5, 2.5), (1.0, 0.5), (25 - REST, 3.0)),  # a thin wall from the left ...
        ((25.5, 2.5), (-1.0, 0.5), (25 + REST, 3.0)),  # ... and from the right
        ((24.5, 4.5), (1.0, 1.0), (25 - REST, 5.5)),  # sliding past the end of a wall
        ((24.5, 7.5), (1.0, 0.0), (25.5, 7.5)),  # through the bottleneck
    ],
)
def test_worked_moves_in_the_bottleneck_maze(position, action, expected):
    maze = envs.make("bottleneck-maze")
    step = jax.jit(maze.step)(jnp.array(position), jnp.array(action), jax.random.key(0))
    np.testing.assert_allclose(step.obs, expected, atol=3e-5)
    np.testing.assert_array_equal(step.state, step.obs)
    assert (bool(step.terminated), bool(step.truncated)) == (False, False)


def test_a_bent_path_must_not_jump_a_wall_that_its_shortcut_crosses():
    """From (1, 1) to the ceiling y = 5 at x = 4, and along it over a shelf at y = 4.5: the straight
    line from (1, 1) to (7, 5) would go through the shelf, so the move ends at the ceiling."""
    walls = jnp.array([[0.0, 5, 10, 5], [4.5, 4.5, 10, 4.5]])
    after = jax.jit(move)(jnp.array([1.0, 1.0]), jnp.array([6.0, 8.0]), walls)
    np.testing.assert_allclose(after, [4 - 0.75 * RADIUS, 5 - REST], atol=1e-3)


def test_pressing_on_a_wall_does_not_drift():
    maze = envs.make("wall-free-maze")
    press = jnp.tile(jnp.array([1.0, 0.0]), (1000, 1, 1))
    walls = jnp.array(maze.layout.barriers)
    way = walk(jnp.array([[49.5, 25.5]]), press, walls)
    np.testing.assert_allclose(way[1:, 0], jnp.tile(way[1], (1000, 1)), atol=1e-5)


def test_an_action_that_is_not_a_number_moves_nobody():
    maze = envs.make("u-maze")
    start, _ = maze.reset(jax.random.key(0))
    after = maze.step(start, jnp.array([jnp.nan, 1.0]), jax.random.key(0)).obs
    np.testing.assert_array_equal(after, start)


def test_reachable_buckets():
    counts = {name: int(envs.make(name).reachable().sum()) for name in BUILT_IN}
    assert counts == {"bottleneck-maze": 100, "u-maze": 72, "wall-free-maze": 100}
    # The block fills the buckets of x < 35 and 15 < y < 35; bucket (ix, iy) is at 10 ix + iy.
    blocked = ~envs.make("u-maze").reachable().reshape(10, 10)
    filled = [(x, y) for x in range(7) for y in range(3, 7)]
    np.testing.assert_array_equal(np.argwhere(blocked), filled)


def test_contains():
    maze = envs.make("u-maze")
    free = [(2.5, 2.5), (0.0, 0.0), (50.0, 50.0), (2.0, 40.0), (35.1, 25.0), (10.0, 14.9)]
    taken = [(10, 25), (35, 25), (-0.1, 5), (5, 50.1), (10, 15), (float("nan"), 5)]
    assert [maze.contains(point) for point in free] == [True] * len(free)
    assert [maze.contains(np.array(point)) for point in taken] == [False] * len(taken)


def test_equal_mazes_are_compiled_once():
    traced = []

    def step(maze, position):
        traced.append(maze.name)
        return maze.step(position, position, jax.random.key(0)).obs

    step = jax.jit(step, static_argnums=0)
    for name in ("u-maze", "u-maze", "wall-free-maze"):
        step(envs.make(name), jnp.ones(2))
    assert traced == ["u-maze", "wall-free-maze"]
    assert envs.make("u-maze") == envs.make("u-maze") != Maze(BUILT_IN["u-maze"], max_step=2.0)


@pytest.mark.parametrize("layout", BUILT_IN.values(), ids=BUILT_IN)
def test_built_in_mazes_are_environments(layout):
    maze = envs.make(layout.name)
    assert isinstance(maze, Environment)
    assert maze.name == layout.name
    state, obs = maze.reset(jax.random.key(3))
    np.testing.assert_array_equal(maze.features(obs), np.array(layout.start, np.float32))
    assert state.dtype == obs.dtype == jnp.float32


def test_layouts_refuse_what_cannot_be_simulated():
    with pytest.raises(
        UserError, match=r"mine: wall \(0.0, 0.0, 1.0, 1.0\) is oblique: make x0 = x1"
    ):
        Layout("mine", 5.0, 5.0, (2.5, 2.5), walls=((0.0, 0.0, 1.0, 1.0),))
    with pytest.raises(UserError, match=r"mine: block \(4.0, 3.0, 3.0, 4.0\) is empty or"):
        Layout("mine", 5.0, 5.0, (2.5, 2.5), blocks=((4.0, 3.0, 3.0, 4.0),))
    for start in [(6.0, 1.0), (0.01, 1.0), (float("nan"), 1.0), (3.5, 3.5)]:
        with pytest.raises(UserError, match=r"mine: start .* is outside .* or touches a wall"):
            Layout("mine", 5.0, 5.0, start, blocks=((3.0, 3.0, 4.0, 4.0),))


# --- mazes drawn in text ----------------------------------------------------------------------

DRAWN = "..#\nS##\n. .\n"


def test_a_drawn_maze():
    layout = parse_text(DRAWN, "mine")
    assert (layout.width, layout.height, layout.buckets) == (15.0, 15.0, (3, 3))
    assert layout.start == (2.5, 7.5)
    assert set(layout.blocks) == {(10.0, 10.0, 15.0, 15.0), (5.0, 5.0, 15.0, 10.0)}
    # Only where solid meets free is there a wall; the two blocks share no wall with each other.
    assert set(layout.inner) == {
        (10.0, 10.0, 10.0, 15.0),
        (5.0, 5.0, 5.0, 10.0),
        (5.0, 10.0, 10.0, 10.0),
        (5.0, 5.0, 15.0, 5.0),
    }
    reachable = Maze(layout).reachable().reshape(3, 3)  # [ix, iy], y upwards
    np.testing.assert_array_equal(reachable.T[::-1], [[1, 1, 0], [1, 0, 0], [1, 1, 1]])


def test_a_drawn_maze_may_end_with_or_without_a_newline():
    assert parse_text(DRAWN, "mine") == parse_text(DRAWN.removesuffix("\n"), "mine")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_can_be_covered_completely(path):
    maze = envs.make(str(path))
    free = path.read_text().count(".") + 1
    assert maze.reachable().sum() == free
    assert envs.make(maze.name) == maze


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.txt: the maze is empty: draw it in text"),
        ("\n\n", "m.txt: the maze is empty: draw it in text"),
        ("S..\n..\n", "line 2 is 2 characters long, line 1 is 3: make all lines equally long"),
        ("S..\n...\n\n", "line 3 is 0 characters long, line 1 is 3: make all lines equally long"),
        ("S..\n.x.\n", "line 2, column 2 is 'x': '#' is solid, '.' or a space is free"),
        ("S.\t\n", "line 1, column 3 is '\\t': '#' is solid"),
        ("s..\n", "line 1, column 1 is 's': '#' is solid"),
        ("...\n...\n", "no start in lines 1 to 2: put one 'S' in a free cell"),
        ("S..\n..S\n", "2 starts, the second in line 2, column 3: keep one 'S'"),
        ("###\n#S#\n", "the start in line 2, column 2 has no free cell around it: make some"),
        ("S.#.\n..##\n", "1 free cells cannot be reached from the start in line 1, column 1, such"),
        ("S.#.\n.#..\n", "3 free cells cannot be reached from the start in line 1, column 1, such"),
        ("S.#.\n", "such as line 1, column 4: open a way to them or make them '#'"),
    ],
)
def test_a_wrong_drawing_is_explained(tmp_path, text, message):
    (tmp_path / "m.txt").write_text(text)
    with pytest.raises(UserError) as error:
        envs.make(str(tmp_path / "m.txt"))
    assert str(error.value).startswith(str(tmp_path / "m.txt") + ": ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_explained(tmp_path):
    (tmp_path / "picture.txt").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "folder.txt").mkdir()
    for name, reason in [
        ("picture.txt", "not a text file"),
        ("folder.txt", "Is a directory"),
        ("absent.txt", "No such file"),
        ("nul\0.txt", "null"),
    ]:
        with pytest.raises(UserError, match=f"{name}: .*{reason}.*: ") as error:
            load(tmp_path / name)
        assert "\n" not in str(error.value)


# --- the registry -----------------------------------------------------------------------------


def test_every_environment_is_described_in_a_line():
    assert envs.names() == [*BUILT_IN, "ant", "half-cheetah", "walker2d"]
    assert list(envs.describe()) == envs.names()
    assert all(text and "\n" not in text for text in envs.describe().values())


def test_an_unknown_name_is_met_with_near_ones():
    message = r"unknown environment 'umaze': did you mean u-maze.*path of a \.txt file"
    with pytest.raises(UserError, match=message):
        envs.make("umaze")
    with pytest.raises(UserError, match=r"unknown environment 'xyz': choose from: bottleneck"):
        envs.make("xyz")


def test_a_file_is_found_by_its_suffix_its_path_or_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plain").write_text("S.")
    assert envs.make("plain").layout.width == 10.0
    for path in ("absent.txt", "no/where"):
        with pytest.raises(UserError, match=f"{path}: cannot read this maze file"):
            envs.make(path)


def test_the_registry_does_not_import_gymnasium():
    program = "import sys, upside.envs; sys.exit('gymnasium' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
