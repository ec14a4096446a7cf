"""What probes do by themselves, without any learning: python results/rhythms.py OUT.json

How far 60 episodes of each kind of probe take a body in 50 steps, and which buckets a million interactions visit
when every episode is five rhythms of 50 steps, one after another, each with phases and a period of its own: RANDOM,
with the actions of UPSIDE's probes on bodies.
"""

import json
import sys

import numpy as np

from upside import envs
from upside.envs.bodies import BODIES, CONTROL
from upside.version import __version__, commit

EPISODES, INTERACTIONS, SEEDS = 60, 1_000_000, (0, 1)


def held(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.repeat(rng.uniform(-1, 1, (1, size)), CONTROL.T, axis=0)


def independent(rng: np.random.Generator, size: int) -> np.ndarray:
    return rng.uniform(-1, 1, (CONTROL.T, size))


def rhythm(rng: np.random.Generator, size: int) -> np.ndarray:
    """As `engine.collect.direct` has it."""
    period = CONTROL.T * (0.2 + 0.1 * rng.uniform(-1, 1))
    steps = np.arange(CONTROL.T)[:, None]
    return np.sign(np.sin(2 * np.pi * steps / period + np.pi * rng.uniform(-1, 1, size)))


def played(simulator, actions: np.ndarray) -> np.ndarray:
    """Features of every state of an episode."""
    first = simulator.reset(0)
    return np.stack([first.features, *(simulator.step(action).features for action in actions)])


def measured(name: str) -> dict:
    env = envs.make(name)
    with env.simulators(1) as (simulator,):
        far = {}
        for kind in (held, independent, rhythm):
            rng = np.random.default_rng(0)
            ends = [played(simulator, kind(rng, env.action_size))[-1] for _ in range(EPISODES)]
            x = np.abs(np.stack(ends)[:, 0])
            far[kind.__name__] = {"median": float(np.median(x)), "most": float(x.max())}
        visited = []
        for seed in SEEDS:
            rng, seen = np.random.default_rng(seed), set()
            for _ in range(INTERACTIONS // CONTROL.episode):
                parts = [rhythm(rng, env.action_size) for _ in range(CONTROL.episode // CONTROL.T)]
                seen |= env.space.covered(played(simulator, np.concatenate(parts)))
            visited.append(len(seen))
    return {"how_far_in_50_steps": far, "visited_by_rhythms": visited}


def main() -> None:
    found = {name: measured(name) for name in BODIES}
    said = {"command": "python results/rhythms.py OUT.json", "version": __version__}
    said |= {"commit": commit(), "episodes": EPISODES, "interactions": INTERACTIONS, "seeds": SEEDS}
    with open(sys.argv[1], "w") as file:
        json.dump({**said, "bodies": found}, file, indent=1)
        file.write("\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
