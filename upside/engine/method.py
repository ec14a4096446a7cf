"""A method is a value: what fills the engine's slots. `upside/methods.py` declares them all."""

from __future__ import annotations

import dataclasses
from typing import Any

from upside.learners.population import UPDATE_CHUNK, Distinct, Shared
from upside.learners.sac import SAC
from upside.learners.td3 import TD3
from upside.models.discriminator import Discriminator
from upside.models.vqvae import VQVAE
from upside.rewards import DiffusingReward, StateReward
from upside.skills.gate import Gate
from upside.skills.growth import Fixed, Growth
from upside.skills.plan import Plan
from upside.skills.practice import Practice
from upside.types import UserError, flag, unknown

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Plan, Practice, TD3, SAC, Distinct, Shared, Discriminator, VQVAE),
        *(DiffusingReward, StateReward, Growth, Fixed, Gate),
    )
}
"""What may fill a slot, by the name that a configuration file has for it."""
SINCE: dict[str, Any] = {"imitation": 0.0, "snap": 1.0, "average": True, "paid": "end"}
"""Settings that older runs do not have, with what was done then."""


@dataclasses.dataclass(frozen=True)
class Method:
    """The slots: how an episode is cut, how a skill practises and learns, whether skills share a
    network, who judges them, what they are paid, how the set grows, and what gates its growth
    (nothing, in the paper)."""

    plan: Plan = dataclasses.field(default_factory=Plan)
    practice: Practice = dataclasses.field(default_factory=Practice)
    learner: TD3 | SAC = dataclasses.field(default_factory=TD3)
    population: Distinct | Shared = dataclasses.field(default_factory=Distinct)
    judge: Discriminator | VQVAE = dataclasses.field(default_factory=Discriminator)
    reward: DiffusingReward | StateReward = dataclasses.field(default_factory=DiffusingReward)
    growth: Growth | Fixed = dataclasses.field(default_factory=Growth)
    gate: Gate | None = dataclasses.field(default_factory=Gate)

    def slots(self) -> dict[str, Any]:
        """The slots that are filled."""
        named = {slot.name: getattr(self, slot.name) for slot in dataclasses.fields(self)}
        return {name: part for name, part in named.items() if part is not None}

    def words(self) -> dict[str, str]:
        """What fills the slots, in a few words: all that tells methods apart; nothing where it is never used."""
        used = (
            {"plan", "growth"} if self.growth.max_depth == 0 else set(self.slots()) - {"practice"}
        )
        return {name: part.words for name, part in self.slots().items() if name in used}

    def settings(self) -> dict[str, Any]:
        """Every hyper-parameter by its name; names are unique across slots."""
        return {k: v for part in self.slots().values() for k, v in dataclasses.asdict(part).items()}

    def idle(self) -> set[str]:
        """Settings that no other value would suit, or would change nothing but random numbers: the other slots decide."""
        if self.growth.max_depth == 0:  # nothing is learned
            return set(self.settings()) - {"H", "H_max", "buffer_episodes"}
        alone = isinstance(self.growth, Fixed)  # one call of POLICYLEARNING, next to nobody
        names = {
            "H": isinstance(self.reward, StateReward),  # is paid for the directed part alone
            "code_size": True,  # the judge's
            "states": True,  # say which method it is
            "prior": self.reward.prior == "uniform",
            "novelty": not self.reward.novelty,
            "jitter": not self.plan.H,  # in radii of a diffusing part
            "feature_scale": not self.plan.H,
            "consolidated_weight": alone and not self.plan.H,
            "keep_discriminator": alone,
            "rehearsal": self.gate is None,
            "self_imitation": isinstance(self.reward, StateReward),
            "imitation": isinstance(self.reward, StateReward),
        }
        return {name for name, nothing in names.items() if nothing and name in self.settings()}

    def replace(self, settings: dict[str, Any]) -> Method:
        """The method with some hyper-parameters changed, each wherever its name belongs."""
        left, method = dict(settings), self
        for slot, part in self.slots().items():
            names = [f.name for f in dataclasses.fields(part) if f.name in left]
            changed = dataclasses.replace(part, **{name: left.pop(name) for name in names})
            method = dataclasses.replace(method, **{slot: changed})
        if left:
            raise unknown("setting", next(iter(left)), self.settings())
        return method

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Every slot with what fills it."""
        return {
            name: {"kind": type(part).__name__, **dataclasses.asdict(part)}
            for name, part in self.slots().items()
        }

    @classmethod
    def from_json(cls, data: dict[str, dict[str, Any]]) -> Method:
        """The inverse. A setting that does not exist here, or is missing, raises a ValueError."""
        slots: dict[str, Any] = {"gate": None}
        for name, saved in data.items():
            values = {k: v for k, v in saved.items() if k != "kind"}
            kind = KINDS.get(saved.get("kind", ""))
            known = {f.name for f in dataclasses.fields(kind)} if kind else set()
            values = {k: v for k, v in SINCE.items() if k in known} | values
            if kind is None or set(values) != known:
                raise ValueError(", ".join(sorted(set(values) ^ known)) or name)
            slots[name] = kind(**values)
        return cls(**slots)

    def check(self) -> None:
        """Refuse what cannot work, naming the value and the fix."""
        for name, part in self.slots().items():
            if name != "reward":
                part.check()
        self.reward.check(self.plan)
        plan, practice = self.plan, self.practice
        for name in ("rollouts", "fresh"):
            if getattr(practice, name) > plan.buffer_episodes:
                raise UserError(
                    f"--{name} {getattr(practice, name)} exceeds --buffer-episodes "
                    f"{plan.buffer_episodes}: lower it"
                )
        for name in ("k_pol", "rehearsal"):
            if getattr(practice, name) % UPDATE_CHUNK:
                raise UserError(
                    f"{flag(name)} {getattr(practice, name)} is not a multiple of {UPDATE_CHUNK}"
                )
        sizes = [getattr(part, "code_size", None) for part in (self.population, self.judge)]
        if sizes[0] != sizes[1] and None not in sizes:
            raise UserError(f"--code-size {sizes[0]}: the VQ-VAE's codes have {sizes[1]} numbers")
        if UPDATE_CHUNK % self.learner.policy_delay:
            raise UserError(
                f"--policy-delay {self.learner.policy_delay} does not divide {UPDATE_CHUNK}: try 2"
            )
        for name in ("self_imitation", "imitation"):
            if getattr(self.learner, name) and not self.reward.returns:
                raise UserError(
                    f"{flag(name)} needs UPSIDE's reward at a skill's end: switch it off"
                )
        if not self.reward.ends and self.learner.gamma >= 1:
            raise UserError("--gamma 1.0: a reward at every step has no finite sum; try 0.99")
        if self.growth.max_depth == 0 and not plan.H:
            raise UserError("--max-depth 0 needs a diffusing part: there would be nothing to do")
        if self.gate is None:
            if not practice.k_initial:
                raise UserError("no data to start from: set --k-initial (paper: 1000)")
        elif not plan.H:
            raise UserError("--H 0: the gate judges free space by diffusing parts; try --H 7")
        elif self.gate.claim and not self.growth.freeze:
            raise UserError(
                "--claim needs --freeze: only a frozen policy is judged on a whole buffer of its own"
            )
