"""MuJoCo bodies as the paper has them: Gymnasium's v5 ids, never terminated for falling.

The paper's agents move on their backs too, so falling ends nothing (Half-Cheetah cannot fall). What a
policy observes is a body's joints and velocities without its place: the discriminator's features are
not part of it, and a skill works wherever it starts. Ant's contact forces are left out: they are 78
of 105 numbers, mostly zero, and came with v5; with 27 the Ant is the one of the paper's time.

Every episode starts in the same state, the paper's "designated initial state s_0" (Sect. 2): Gymnasium
shakes it a little by default, and what falls on its feet in one episode falls on its back in the next
(docs/research.md has what that changes).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from upside.envs.host import HostEnv, registered
from upside.types import Size

CONTROL = Size(
    T=50,
    H=50,
    episode=250,
    hidden=256,
    k_steps=100_000,
    probe="rhythm",
    probes=12,
    tries=1,
    reprobes=1000,
    fresh=1,
    rehearsal=2000,
    imitation=20.0,
    snap=0.9,
)
"""App. C, "control specific"; from the probes on it is ours (docs/environments.md)."""
ALONG_A_LINE = dataclasses.replace(CONTROL, probes=36)
"""With one way to go forth and one back, free space is harder to find than in a plane."""
FAR_ALONG_A_LINE = dataclasses.replace(CONTROL, probes=108)
"""Where rhythms differ much in how far they go, the farthest of many is worth what the others cost (docs/research.md)."""


@dataclasses.dataclass(frozen=True)
class Body:
    """A Gymnasium id with what is discriminated and where coverage is counted."""

    gym_id: str
    about: str
    features: str
    box: tuple[float, ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    size: Size = CONTROL


BODIES = {
    "ant": Body(
        "Ant-v5",
        "MuJoCo Ant, discriminated by x and y",
        "info:x_position,y_position",
        (-20.0, 20.0, -20.0, 20.0),
        {"terminate_when_unhealthy": False, "include_cfrc_ext_in_observation": False},
    ),
    "half-cheetah": Body(
        "HalfCheetah-v5",
        "MuJoCo Half-Cheetah, discriminated by x",
        "info:x_position",
        (-30.0, 30.0),
        size=FAR_ALONG_A_LINE,
    ),
    "walker2d": Body(
        "Walker2d-v5",
        "MuJoCo Walker2d, discriminated by x",
        "info:x_position",
        (-10.0, 10.0),
        {"terminate_when_unhealthy": False},
        ALONG_A_LINE,
    ),
}
BUCKETS = 50  # per axis, as in the paper


def make(
    name: str,
    features: str | None = None,
    box: tuple[float, ...] | None = None,
    buckets: tuple[int, ...] | None = None,
) -> HostEnv:
    """A body by name, with other features, another box or other buckets if they are given."""
    body = BODIES[name]
    return registered(
        body.gym_id,
        features or body.features,
        box or body.box,
        buckets or (BUCKETS,),
        name=name,
        size=body.size,
        repeats=True,
        reset_noise_scale=0.0,
        **body.options,
    )
