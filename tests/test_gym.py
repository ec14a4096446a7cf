"""The mazes as Gymnasium environments: what learners from elsewhere rely on."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from upside.envs import gym, layouts
from upside.types import UserError

IDS = [i for i in gymnasium.registry if i.startswith("upside/") and i != "upside/Maze-v0"]
BOTTLENECK = "upside/BottleneckMaze-v0"


def drawn(tmp_path, text="S.\n.."):
    path = tmp_path / "mine.txt"
    path.write_text(text)
    return str(path)


def test_every_maze_has_an_id():
    assert IDS == ["upside/BottleneckMaze-v0", "upside/UMaze-v0", "upside/WallFreeMaze-v0"]
    assert len(IDS) == len(layouts.BUILT_IN)
    gym.register()  # twice does no harm


@pytest.mark.parametrize("identifier", IDS)
def test_gymnasium_finds_nothing_to_warn_about(identifier):
    check_env(gymnasium.make(identifier).unwrapped)
    check_env(gymnasium.make(identifier, render_mode="rgb_array").unwrapped)


def test_gymnasium_can_import_us():
    program = (
        "import gymnasium; env = gymnasium.make('upside.envs.gym:upside/UMaze-v0'); "
        "assert env.reset()[0].tolist() == [2.5, 2.5]"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_a_drawn_maze_can_be_played(tmp_path):
    path = drawn(tmp_path)
    env = gymnasium.make("upside/Maze-v0", layout=path)
    check_env(env.unwrapped)
    assert env.observation_space.high.tolist() == [10, 10]
    assert env.reset()[0].tolist() == [2.5, 7.5]
    vector = gymnasium.make_vec("upside/Maze-v0", num_envs=2, layout=layouts.load(path))
    assert vector.reset()[0].tolist() == [[2.5, 7.5]] * 2


def test_a_wrong_maze_is_the_users_error():
    with pytest.raises(UserError, match="unknown environment 'umaze'"):
        gymnasium.make("upside/Maze-v0", layout="umaze")


def test_a_step_moves_and_pays_nothing():
    env = gymnasium.make(BOTTLENECK)
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(np.array([0.5, -0.25], np.float32))
    np.testing.assert_allclose(obs, [3.0, 2.25])
    assert obs.dtype == np.float32
    assert (reward, terminated, truncated, info) == (0.0, False, False, {})


def test_an_episode_is_truncated_after_200_steps_and_can_start_again():
    env = gymnasium.make(BOTTLENECK)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]
    assert env.reset()[0].tolist() == [2.5, 2.5]


def test_the_vector_environment_is_many_single_ones():
    """Autoreset included: Gymnasium's own vector of single environments is the reference."""
    ours = gymnasium.make_vec(BOTTLENECK, num_envs=3)
    reference = gymnasium.make_vec(BOTTLENECK, num_envs=3, vectorization_mode="sync")
    assert isinstance(ours, gym.MazeVectorEnv)
    assert ours.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert ours.observation_space == reference.observation_space
    assert ours.action_space == reference.action_space
    np.testing.assert_array_equal(ours.reset(seed=7)[0], reference.reset(seed=7)[0])
    ours.action_space.seed(7)
    for _ in range(450):
        actions = ours.action_space.sample()
        for got, expected in zip(ours.step(actions), reference.step(actions), strict=True):
            if isinstance(got, dict):
                assert got == expected == {}
            else:
                np.testing.assert_allclose(got, expected, atol=1e-3)
                assert got.dtype == expected.dtype


def test_the_last_observation_is_the_true_one():
    vector = gymnasium.make_vec("upside/WallFreeMaze-v0", num_envs=2, max_episode_steps=3)
    vector.reset()
    right = np.tile(np.float32([1, 0]), (2, 1))
    seen = [vector.step(right) for _ in range(5)]
    assert [step[0][0, 0] for step in seen] == [26, 27, 28, 25, 26]
    assert [step[3].tolist() for step in seen] == [[end, end] for end in (0, 0, 1, 0, 0)]


def test_some_of_the_vector_can_be_reset():
    vector = gymnasium.make_vec("upside/WallFreeMaze-v0", num_envs=2)
    vector.reset()
    vector.step(np.ones((2, 2), np.float32))
    obs, _ = vector.reset(options={"reset_mask": np.array([True, False])})
    assert obs.tolist() == [[25, 25], [26, 26]]


def test_results_belong_to_the_caller():
    for env, shape in [
        (gymnasium.make(BOTTLENECK), 2),
        (gymnasium.make_vec(BOTTLENECK, num_envs=2), (2, 2)),
    ]:
        env.reset()[0][:] = 40.0
        env.step(np.zeros(shape, np.float32))[0][:] = 40.0
        obs = env.step(np.zeros(shape, np.float32))[0]
        np.testing.assert_array_equal(obs, np.full(shape, 2.5))


def test_the_same_actions_lead_to_the_same_place():
    def run():
        env = gymnasium.make("upside/UMaze-v0")
        env.reset(seed=1)
        env.action_space.seed(1)
        return [env.step(env.action_space.sample())[0] for _ in range(50)]

    np.testing.assert_array_equal(run(), run())


def test_the_picture_shows_walls_start_trail_and_agent_with_y_upwards(tmp_path):
    env = gym.MazeEnv(drawn(tmp_path, "....\nS.##"), render_mode="rgb_array")
    env.reset()
    for _ in range(6):
        env.step(np.array([1.0, 1.0], np.float32))
    frame = env.render()
    assert frame.shape == (264, 504, 3)  # 20 x 10 units on 480 x 240 pixels, and the margin
    assert frame.dtype == np.uint8

    def colour(x, y):
        pixel = frame[round(12 + 24 * (10 - y)), round(12 + 24 * x)]
        return f"#{pixel.tobytes().hex()}"

    assert colour(12.5, 2) == gym.SOLID
    assert colour(12.5, 8) == gym.PAPER
    assert colour(10, 3.5) == gym.WALL  # where free meets solid
    assert colour(5.5, 5.5) == gym.TRAIL
    assert colour(8.5, 8.5) == gym.AGENT
    assert gym.START in {colour(2.5, y) for y in np.linspace(2, 3, 25)}
    assert gym.MazeEnv("u-maze").render() is None
