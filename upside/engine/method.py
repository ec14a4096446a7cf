"""A method is a value: what fills the engine's slots. `upside/methods.py` declares them all."""

from __future__ import annotations

import dataclasses
from typing import Any

from upside.learners.td3 import TD3
from upside.models.discriminator import Discriminator
from upside.rewards import DiffusingReward
from upside.skills.growth import Growth
from upside.skills.plan import Plan
from upside.types import UserError

UPDATE_CHUNK = 10
"""Skill updates whose random numbers are drawn at once: drawing is cheap in bulk."""


@dataclasses.dataclass(frozen=True)
class Method:
    """The slots: how long (plan), how a skill learns, who judges it, what it is paid, how the set grows."""

    plan: Plan = dataclasses.field(default_factory=Plan)
    learner: TD3 = dataclasses.field(default_factory=TD3)
    discriminator: Discriminator = dataclasses.field(default_factory=Discriminator)
    growth: Growth = dataclasses.field(default_factory=Growth)
    reward: DiffusingReward = dataclasses.field(default_factory=DiffusingReward)

    def settings(self) -> dict[str, Any]:
        """Every hyper-parameter by its name; names are unique across slots."""
        flat: dict[str, Any] = {}
        for slot in dataclasses.fields(self):
            flat |= dataclasses.asdict(getattr(self, slot.name))
        return flat

    def check(self) -> None:
        """Refuse what cannot work, naming the value and the fix."""
        s = self.settings()
        if not 0.0 < s["eta"] < 1.0:
            raise UserError(f"--eta {s['eta']} is outside (0, 1): try 0.8, the paper's value")
        if self.growth.target >= 1.0:
            raise UserError(
                f"--eta {s['eta']} and --margin {s['margin']} add up to 1 or more: lower one"
            )
        if s["n_start"] > s["n_max"]:
            raise UserError(
                f"--n-start {s['n_start']} exceeds --n-max {s['n_max']}: lower the one or raise the other"
            )
        for name in (
            "T",
            "H",
            "n_start",
            "buffer_episodes",
            "hidden",
            "batch_pol",
            "hidden_discr",
            "batch_discr",
            "k_steps",
            "j",
            "k_pol",
            "k_discr",
            "policy_delay",
            "rollouts",
            "tries",
        ):
            if s[name] < 1:
                raise UserError(f"--{flag(name)} {s[name]} is less than 1: give at least 1")
        for name in (
            "lr_pol",
            "lr_discr",
            "sigma",
            "tau",
            "gamma",
            "k_initial",
            "probes",
            "patience",
            "critic_warmup",
            "rollouts",
            "fresh",
            "rehearsal",
            "consolidated_weight",
            "feature_scale",
            "jitter",
            "target_noise",
            "noise_clip",
            "reprobes",
            "relax",
            "least_reach",
            "margin",
            "free_share",
        ):
            if not s[name] >= 0:
                raise UserError(f"--{flag(name)} {s[name]} is not a number of at least 0")
        for name in ("gamma", "tau", "free_share", "relax"):
            if s[name] > 1:
                raise UserError(f"--{flag(name)} {s[name]} exceeds 1: give a value in [0, 1]")
        for name in ("k_pol", "k_discr", "rehearsal"):
            if s[name] % UPDATE_CHUNK:
                raise UserError(f"--{flag(name)} {s[name]} is not a multiple of {UPDATE_CHUNK}")
        for name in ("rollouts", "fresh"):
            if s[name] > s["buffer_episodes"]:
                raise UserError(
                    f"--{name} {s[name]} exceeds --buffer-episodes {s['buffer_episodes']}: lower it"
                )
        if s["order"] not in ("gain", "discriminability"):
            raise UserError(f"--order {s['order']} is neither gain nor discriminability")
        if s["least_reach"] <= 0:
            raise UserError(f"--least-reach {s['least_reach']} is not above 0: try 0.5")
        if UPDATE_CHUNK % s["policy_delay"]:
            raise UserError(
                f"--policy-delay {s['policy_delay']} does not divide {UPDATE_CHUNK}: try 2"
            )
        if s["buffer_episodes"] < 4:
            raise UserError(f"--buffer-episodes {s['buffer_episodes']} is less than 4: try 10")
        if s["claim"] and not s["freeze"]:
            raise UserError("--claim needs --freeze: a claim is left when a skill is frozen there")
        if s["claim"] and not s["probes"]:
            raise UserError("--claim needs probes to claim: set --probes, or --no-claim")
        if not s["probes"] and not s["k_initial"]:
            raise UserError("no data to start from: set --k-initial (paper: 1000) or --probes")


def flag(name: str) -> str:
    """How a field is spelled on the command line."""
    return name.replace("_", "-")
