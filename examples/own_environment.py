"""Skills for an environment of your own: discovered, measured, and used to reach a goal.

    python examples/own_environment.py            # two minutes
    python examples/own_environment.py 15000      # with fewer interactions

All that `upside` needs is a function that makes a `gymnasium.Env` with continuous actions, what tells
places apart, and the box in which they lie. No reward is used until a goal is asked for.
"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box

import upside


class Boat(gymnasium.Env):
    """A boat in a harbour: thrust and drag, a quay all around, and a current to the east."""

    observation_space = Box(-np.inf, np.inf, (4,))
    action_space = Box(-0.5, 0.5, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-0.1, 0.1, 2)
        self.speed = np.zeros(2)
        return self._seen(), {}

    def step(self, action):
        self.speed = 0.6 * self.speed + action
        moved = self.at + self.speed + [0.05, 0.0]
        self.at = np.clip(moved, -10.0, 10.0)
        self.speed[moved != self.at] = 0.0  # the quay stops it
        return self._seen(), 0.0, False, False, {}

    def _seen(self):
        return np.concatenate([self.at, self.speed]).astype(np.float32)


def main(budget: int) -> None:
    harbour = upside.environment(
        Boat, "harbour", features="obs:0,1", box=(-10, 10, -10, 10), buckets=(10,)
    )
    run = upside.discover("upside", env=harbour, seed=0, max_interactions=budget)
    covered = run.coverage()
    print(f"{covered['buckets']} of 100 buckets with {len(run) - 1} policies")

    end = run.rollout(1)[0][-1]  # observations along the first policy's skills
    print(f"policy 1 goes to {end[0]:.1f}, {end[1]:.1f}")

    goal = (5.0, -4.0)
    found = run.reach(goal, budget=max(60_000, 2 * len(run) * 10 * run.method.plan.H_max))
    steps = "never" if found.after.steps is None else f"after {found.after.steps:.0f} steps"
    print(f"the goal {goal} is reached {steps}, γ^τ = {found.after.reward:.3f}")

    run.save("harbour-run", overwrite=True)
    assert len(upside.load("harbour-run", env=harbour)) == len(run)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
