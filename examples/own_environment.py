"""Skills for an environment of your own: discovered, measured, and used to reach a goal.

    python examples/own_environment.py
    python examples/own_environment.py 15000      # with fewer interactions

All that `upside` needs is a function that makes a `gymnasium.Env` with continuous actions, what tells
places apart, and the box in which they lie. No reward is used until a goal is asked for.
"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box

import upside


class Raft(gymnasium.Env):
    """A raft on a pond with a bank all around and an eddy in its middle."""

    observation_space = Box(-10.0, 10.0, (2,))
    action_space = Box(-0.8, 0.8, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.array([-8.0, -8.0]) + self.np_random.uniform(-0.1, 0.1, 2)
        return self.at.astype(np.float32), {}

    def step(self, action):
        x, y = self.at
        eddy = 2.0 * np.array([-y, x]) / (4.0 + x * x + y * y)
        self.at = np.clip(self.at + action + eddy, -10.0, 10.0)
        return self.at.astype(np.float32), 0.0, False, False, {}


def main(budget: int) -> None:
    pond = upside.environment(
        Raft, "pond", features="obs:0,1", box=(-10, 10, -10, 10), buckets=(10,)
    )
    run = upside.discover("upside", env=pond, seed=0, max_interactions=budget)
    covered = run.coverage()
    print(f"{covered['buckets']} of 100 buckets with {len(run) - 1} policies")

    end = run.rollout(1)[0][-1]  # observations along the first policy's skills
    print(f"policy 1 goes to {end[0]:.1f}, {end[1]:.1f}")

    goal = (5.0, 4.0)
    trials = 10 * len(run) * run.method.plan.H_max  # interactions to choose a policy
    found = run.reach(goal, budget=trials + budget // 3)
    steps = "never" if found.after.steps is None else f"after {found.after.steps:.0f} steps"
    print(f"the goal {goal} is reached {steps}, γ^τ = {found.after.reward:.3f}")

    run.save("pond-run", overwrite=True)
    assert len(upside.load("pond-run", env=pond)) == len(run)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
