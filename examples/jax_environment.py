"""Skills for an environment written in JAX: a pendulum in gusts of wind, rolled out inside compiled programs.

    python examples/jax_environment.py
    python examples/jax_environment.py 15000      # with fewer interactions

`reset` and `step` are pure functions of a state and a random key. What the discriminator sees is the
angle and its velocity; the motor is too weak to lift the pendulum at once, so that it has to swing.
"""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

import upside
from upside.types import Space, Step


@dataclasses.dataclass(frozen=True)
class Pendulum:
    """Hangs down at the start. The angle is counted on where it goes over the top."""

    gusts: float = 0.02
    name = "windy-pendulum"
    observation_size, action_size = 2, 1
    deterministic = False  # the wind: every episode walks to its node anew
    space = Space((-6.0, -6.0), (6.0, 6.0), (20, 20))

    def reset(self, key):
        state = jnp.zeros(2)
        return state, state

    def step(self, state, action, key):
        angle, velocity = state
        torque = 0.8 * action[0] + self.gusts * jax.random.normal(key)
        velocity = jnp.clip(0.98 * velocity + 0.2 * (torque - jnp.sin(angle)), -6.0, 6.0)
        state = jnp.stack([angle + 0.2 * velocity, velocity])
        never = jnp.array(False)
        return Step(state, state, never, never)

    def features(self, obs):
        return obs

    def reachable(self):
        """Nobody knows."""


def main(budget: int) -> None:
    run = upside.discover("upside", env=Pendulum(), seed=0, max_interactions=budget)

    covered = run.coverage()
    print(f"{covered['buckets']} buckets with {len(run) - 1} policies")
    highest = max(float(np.abs(run.rollout(z)[0][:, 0]).max()) for z in range(len(run)))
    print(f"the pendulum swings {highest:.1f} radians, the top is at 3.1")
    run.save("pendulum-run", overwrite=True)
    assert len(upside.load("pendulum-run", env=Pendulum())) == len(run)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
