"""Every method, one declaration each: read them side by side to see how they differ.

A method is a `Method` value over the same engine. `upside methods` prints what fills the
slots, `upside methods NAME` every setting beside the paper's UPSIDE.
"""

from __future__ import annotations

import dataclasses

from upside.engine.method import Method
from upside.learners.population import Distinct, Shared
from upside.learners.sac import SAC
from upside.learners.td3 import TD3
from upside.models.discriminator import Discriminator
from upside.models.vqvae import VQVAE
from upside.rewards import DiffusingReward, StateReward
from upside.skills.gate import Gate
from upside.skills.growth import Fixed, Growth
from upside.skills.plan import Plan
from upside.skills.practice import Practice
from upside.types import Size, UserError, World, unknown

UPSIDE = Method(
    plan=Plan(),
    practice=Practice(),
    learner=TD3(),
    population=Distinct(),
    judge=Discriminator(),
    reward=DiffusingReward(),
    growth=Growth(),
    gate=Gate(),
)
"""Our default: Alg. 2 with the free-space gate, claims, cheap rounds, freezing and giving up."""

CONSTRAINED = Growth(
    margin=0.0,
    freeze=False,
    patience=0,
    check_consolidated=False,
    check_blur=0.0,
    harm=0.0,
    doubt=0.0,
)
"""Alg. 2's node adaptation without what we add to it."""

LITERAL = Method(
    plan=Plan(H=10),
    practice=Practice(fresh=10, reuse=False, k_initial=1000, rehearsal=0, critic_warmup=0),
    learner=TD3(tau=0.005, self_imitation=False),
    judge=Discriminator(keep_discriminator=False, jitter=0.0),
    growth=CONSTRAINED,
    gate=None,
)
"""Alg. 2 to the letter, a new discriminator at every call: what the declarations below begin with. Of App. C's
ranges, the values that early experiments preferred."""

PAPER = dataclasses.replace(
    LITERAL,
    judge=Discriminator(jitter=0.0),
    growth=dataclasses.replace(CONSTRAINED, k_steps_of="expansion"),
)
"""App. B and C as we read them: K_steps are all that an expansion has, and a call of POLICYLEARNING goes
on with the discriminator of the one before. docs/method.md lists our readings."""

RANDOM = dataclasses.replace(
    LITERAL,
    plan=Plan(T=1, H=200, H_max=201),
    growth=dataclasses.replace(CONSTRAINED, max_depth=0),
)
"""A root that may not grow: nothing but its diffusing part, as long as an episode, again and again."""

FLAT = dataclasses.replace(
    LITERAL,
    plan=Plan(T=150, H=50),
    learner=TD3(self_imitation=False),
    reward=DiffusingReward(paid="each"),
    growth=Fixed(),
)
"""UPSIDE with a tree of depth 1: the same policies, longer, their number given.

Every diffusing step is paid: one reward after 150 steps is too little to learn from (docs/baselines.md)."""

DIAYN = Method(
    plan=Plan(T=200, H=0),
    practice=Practice(k_pol=100, k_initial=1000, rehearsal=0, critic_warmup=0),
    learner=TD3(tau=0.005, self_imitation=False),
    judge=Discriminator(jitter=0.0, feature_scale=0.0),
    reward=StateReward(states="all"),
    growth=Fixed(),
    gate=None,
)
"""Eysenbach et al. (2018), with networks of its own for every skill: rewarded on all states."""

VIC = dataclasses.replace(DIAYN, reward=StateReward(states="final", prior="learned"))
"""Gregor et al. (2016): rewarded on the final state, ρ learned."""

SMM = dataclasses.replace(DIAYN, reward=StateReward(states="all", novelty=1.0))
"""Lee et al. (2019) as the paper has it: DIAYN and an exploration bonus from a multinomial over buckets."""

EDL = dataclasses.replace(
    DIAYN,
    judge=VQVAE(),
    population=Shared(),
    reward=StateReward(states="all", average=True),
)
"""Campos et al. (2020): codes of an oracle's states, one network for all skills, paid by the decoder."""

DIAYN_CURR = dataclasses.replace(
    DIAYN,
    judge=Discriminator(keep_discriminator=False, jitter=0.0, feature_scale=0.0),
    growth=dataclasses.replace(CONSTRAINED, n_start=1, n_max=20, max_depth=1),
)
"""DIAYN whose number of skills is adapted as UPSIDE's is, beginning with one."""

DIAYN_HIER = dataclasses.replace(
    DIAYN_CURR,
    plan=Plan(H=0),
    practice=dataclasses.replace(DIAYN.practice, rollouts=10),
    growth=CONSTRAINED,
)
"""UPSIDE's tree without diffusing parts: rewarded on all states of the directed skill."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A method by name."""

    method: Method
    about: str


METHODS: dict[str, Entry] = {
    "upside": Entry(UPSIDE, "UPSIDE with the free-space gate and cheap expansions (our default)"),
    "upside-paper": Entry(PAPER, "UPSIDE as App. B and C of the paper describe it"),
    "flat-upside": Entry(FLAT, "UPSIDE of depth 1: T = 150, H = 50"),
    "diayn": Entry(DIAYN, "DIAYN with networks of its own for every skill"),
    "diayn-curr": Entry(DIAYN_CURR, "DIAYN with UPSIDE's curriculum on the number of skills"),
    "diayn-hier": Entry(DIAYN_HIER, "UPSIDE's tree without diffusing parts"),
    "vic": Entry(VIC, "VIC: final states, learned sampling distribution"),
    "smm": Entry(SMM, "SMM: DIAYN with an exploration bonus"),
    "edl": Entry(EDL, "EDL: skills that go to codes of an oracle's states, one network for all"),
    "random": Entry(RANDOM, "uniformly random actions, episodes of 200 steps"),
}


def sized(method: Method, size: Size | None) -> Method:
    """The method for an environment of that size: episodes, networks and budgets as App. C has them there."""
    if size is None:
        return method
    growth, learner = method.growth, dataclasses.replace(method.learner, hidden=size.hidden)
    H = size.H if method.plan.H else 0
    T, H, H_max = {
        None: (size.T, H, size.episode),
        0: (1, size.episode, size.episode + 1),
        1: (size.episode - H, H, size.episode),
    }[growth.max_depth]
    if isinstance(growth, Growth):
        growth = dataclasses.replace(growth, k_steps=size.k_steps)
    plan = dataclasses.replace(method.plan, T=T, H=H, H_max=H_max)
    method = dataclasses.replace(method, plan=plan, learner=learner, growth=growth)
    return method if method.gate is None else _gated(method, size)


def _gated(method: Method, size: Size) -> Method:
    """How our own default finds and follows probes there."""
    assert method.gate is not None
    looking = {name: getattr(size, name) for name in ("probe", "probes", "tries", "reprobes")}
    gate = dataclasses.replace(method.gate, **looking)
    learner = method.learner
    if isinstance(learner, TD3):
        learner = dataclasses.replace(learner, imitation=size.imitation, snap=size.snap)
    return dataclasses.replace(
        method,
        gate=gate,
        practice=dataclasses.replace(method.practice, fresh=size.fresh, rehearsal=size.rehearsal),
        learner=learner,
    )


LEARNERS = {"td3": TD3, "sac": SAC}


def get(name: str, learner: str | None = None, env: World | None = None) -> Method:
    """The method of that name, with another learner if one is named, for an environment of its size.

    Or an error with the nearest names.
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    method = METHODS[name].method
    if learner is not None:
        if learner not in LEARNERS:
            raise unknown("learner", learner, LEARNERS)
        if method.growth.max_depth == 0:
            raise UserError(f"--learner {learner}: {name} learns nothing; leave it out")
        if not isinstance(method.learner, LEARNERS[learner]):
            method = dataclasses.replace(method, learner=LEARNERS[learner]())
    return sized(method, getattr(env, "size", None))
