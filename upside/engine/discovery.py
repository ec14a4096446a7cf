"""A run in memory: the tree, the arrays behind it, and how it interacts with its environment.

Large arrays that are trained (learners, replay, judge) stay on the device; small ones that are
looked up and edited (bank, state buffers, probes) are NumPy, because editing those on the device
would compile a program for every edit. What a run does is in `engine/train.py` and the modules it
calls: `probing`, `learning`, `consolidation`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from upside.engine import rollouts
from upside.engine.collect import host_key
from upside.engine.method import Method
from upside.engine.round import programs
from upside.learners import replay as replays
from upside.nets import Actor
from upside.rewards import Lookup, Scores, Table
from upside.skills.growth import Expansion
from upside.skills.tree import Tree
from upside.types import Trajectory, World

UNSEEN = 100  # collections of episodes before they are looked through at the latest
CAPACITY = 128  # consolidated policies of a tree before the arrays double


class BudgetSpent(Exception):
    """The next interactions would exceed the budget; nothing was executed."""


@dataclasses.dataclass
class Counters:
    """Interactions, counted in full: every environment step of discovery, parents' skills included."""

    interactions: int = 0
    interactions_without_prefix: int = 0
    rounds: int = 0
    expansions: int = 0
    keys: int = 0
    """Random keys drawn so far; with the seed, the whole state of the generator."""


@dataclasses.dataclass(frozen=True)
class Paid:
    """What stored episodes are worth, by whom, and how many had been stored by then."""

    judge: Any
    classes: Any
    worth: Table | None
    stored: int

    def by(self, scores: Scores) -> bool:
        """Whether that judge would say the same."""
        same = np.array_equal(np.asarray(self.classes), np.asarray(scores.classes))
        return same and self.judge is scores.judge


class Arrays(eqx.Module):
    """Everything of a run that is an array; saved and restored as one pytree."""

    bank: Actor
    buffers: Float[np.ndarray, "classes B feat"]
    counts: np.ndarray
    probes: Trajectory
    own: Float[np.ndarray, "n B feat"]
    own_counts: np.ndarray
    claims: Float[np.ndarray, "n J feat"]
    ages: Int[Array | np.ndarray, " n"]
    learners: PyTree
    replay: replays.Replay
    judge: PyTree
    kept_actors: Actor
    kept_own: np.ndarray
    kept_counts: np.ndarray


class Discovery:
    """The state of a run and its way to the environment."""

    def __init__(
        self,
        env: World,
        method: Method,
        seed: int,
        budget: int,
        cores: int = 1,
        capacity: int | None = None,
    ):
        self.env, self.method, self.seed, self.budget = env, method, seed, budget
        self.programs, self.cores = programs(env, method), cores
        self.rollouts = rollouts.of(env, cores)
        self.tree = Tree()
        self.expansion: Expansion | None = None
        self.counters = Counters()
        self.starts: Any = None
        """Where `go_to` left us: the start of all episodes that follow."""
        self.starts_key = 0
        self.clearances = np.zeros(0)
        """Distance of every probe's diffusing states to the nearest consolidated state buffer."""
        self.stored = 0
        """Episodes put into the replay buffer since it was empty."""
        self._paid: Paid | None = None
        self.buckets: set[int] = set()
        """What the consolidated policies pass, noise-free, in one episode each, as coverage is measured."""
        self._walked: set[int] = set()
        """The policies of which that is known: where chance has a part, another episode passes others."""
        self._visited: set[int] = set()
        self._unseen: list[tuple[Any, np.ndarray, int]] = []
        """Episodes not looked through yet: features, how many of each slot's were wanted, steps."""
        self.radius = 0.0
        """How far the root's diffusing part reaches: the unit of distance."""
        self.reach = method.gate.reach if method.gate else 0.0
        """How far from consolidated policies a state must be to count as free at present, in radii."""
        self.vain = 0
        """Expansions in a row that kept no child since the gate was relaxed."""
        self.looks = 0
        """How often in a row some probes of all nodes were made anew without finding new ground."""
        flat = method.gate is None and method.growth.max_depth in (
            0,
            1,
        )  # the root is expanded once
        self.capacity = capacity or (method.growth.n_max + 1 if flat else CAPACITY)
        self.arrays = self._empty()

    def _empty(self) -> Arrays:
        """Arrays of the right shapes, with nothing in them."""
        method, env, capacity = self.method, self.env, self.capacity
        plan, n = method.plan, method.growth.n_max
        J, features = method.reward.count(plan), len(env.space.low)
        B, P = plan.buffer_episodes * J, method.gate.probes if method.gate else 0
        obs = env.observation_size

        def zeros(*shape: int, kind: Any = np.float32) -> np.ndarray:
            return np.zeros(shape, kind)

        learners = method.population.empty(method.learner, n, obs, env.action_size, self.rng())
        center = np.asarray((np.add(env.space.low, env.space.high)) / 2, np.float32)
        scale = np.asarray(np.subtract(env.space.high, env.space.low) / 2, np.float32)
        judge = method.judge.init(capacity + n, center, scale, self.rng())
        bank = jax.tree.map(lambda leaf: zeros(capacity, *leaf.shape[1:]), learners.actor)
        probes = Trajectory(
            zeros(capacity, P, plan.steps + 1, obs),
            zeros(capacity, P, plan.steps, env.action_size),
            zeros(capacity, P, plan.steps, kind=bool),
            zeros(capacity, P, plan.steps, kind=bool),
            zeros(capacity, P, plan.steps, features),
        )
        return Arrays(
            bank=bank,
            buffers=zeros(capacity + n, B, features),
            counts=zeros(capacity + n, kind=np.int32),
            probes=probes,
            own=zeros(n, B, features),
            own_counts=zeros(n, kind=np.int32),
            claims=zeros(n, J, features),
            ages=zeros(n, kind=np.int32),
            learners=learners,
            replay=replays.init(
                self._replay_episodes(),
                method.reward.length(plan),
                J,
                obs,
                env.action_size,
                features,
            ),
            judge=judge,
            kept_actors=learners.actor,
            kept_own=zeros(n, B, features),
            kept_counts=zeros(n, kind=np.int32),
        )

    def _replay_episodes(self) -> int:
        """As many episodes as one call of POLICYLEARNING can add, or `replay_size` if that is less.

        All of them are relabelled before every round, so room for the data of earlier calls would be paid
        for by each.
        """
        plan, practice, growth = self.method.plan, self.method.practice, self.method.growth
        episodes = growth.k_steps // plan.steps + growth.n_max * plan.buffer_episodes
        episodes += self.method.gate.probes if self.method.gate else 0
        episodes += 2 * growth.n_max * -(-practice.k_initial // plan.T)
        length = self.method.reward.length(plan)
        return min(episodes, max(1, practice.replay_size // length))

    @property
    def relaxed(self) -> bool:
        """Whether the gate was relaxed: free space at its first distance has been used up."""
        return self.method.gate is not None and self.reach < self.method.gate.reach

    def set(self, **changes: Any) -> None:
        """Replace some of the arrays."""
        self.arrays = dataclasses.replace(self.arrays, **changes)

    def state(self) -> dict[str, Any]:
        """Everything of a run that is not an array, ready for JSON."""
        return {
            "nodes": self.tree.to_json(),
            "expansion": dataclasses.asdict(self.expansion) if self.expansion else None,
            "counters": dataclasses.asdict(self.counters),
            "buckets": sorted(self.buckets),
            "visited": sorted(self.visited),
            "radius": self.radius,
            "reach": self.reach,
            "vain": self.vain,
            "looks": self.looks,
            "capacity": self.capacity,
            "starts_key": self.starts_key,
        }

    @classmethod
    def restored(
        cls,
        fresh: Discovery,
        state: dict[str, Any],
        fill: Callable[[Arrays], Arrays],
    ) -> Discovery:
        """The run whose `state()` that was; `fill` puts the saved arrays into arrays of their shapes."""
        run = cls(
            fresh.env,
            fresh.method,
            fresh.seed,
            fresh.budget,
            fresh.cores,
            state["capacity"],
        )
        run.arrays = fill(run.arrays)
        run.tree = Tree.from_json(state["nodes"])
        run._walked = set(range(len(run.tree)))
        run.expansion = Expansion.from_json(state["expansion"]) if state["expansion"] else None
        run.counters = Counters(**state["counters"])
        run.buckets = set(state["buckets"])
        run._visited = set(state.get("visited", state["buckets"]))  # runs older than the count
        run.stored = run.arrays.replay.added()
        run.radius, run.reach = state["radius"], state["reach"]
        run.starts_key, run.vain, run.looks = state["starts_key"], state["vain"], state["looks"]
        if run.expansion is not None:
            run.counters.keys = state["starts_key"] - 1
            run.go_to(run.expansion.node, counted=False)
            run.counters = Counters(**state["counters"])  # its key was drawn before
        return run

    # ---------------------------------------------------------------- randomness

    def key(self) -> PRNGKeyArray:
        """A key never used before: made on the host of the seed and a counter that is part of the state."""
        self.counters.keys += 1
        return host_key(self.seed, self.counters.keys)

    def rng(self) -> np.random.Generator:
        """The same for what is drawn on the host: the first values of new networks."""
        self.counters.keys += 1
        return np.random.default_rng([self.seed, self.counters.keys])

    def new_judge(self) -> None:
        """Start afresh, as Alg. 2 may be read at every call of POLICYLEARNING."""
        old = self.arrays.judge
        center, scale = np.asarray(old.center), np.asarray(old.scale)
        judge = self.method.judge.init(len(self.arrays.counts), center, scale, self.rng())
        self.set(judge=judge)

    # ---------------------------------------------------------------- interactions

    def spend(self, episodes: int, prefix: int, steps: int) -> None:
        """Count `episodes` of `prefix` steps along parents' skills and `steps` of their own."""
        total = episodes * (prefix + steps)
        if self.counters.interactions + total > self.budget:
            raise BudgetSpent
        self.counters.interactions += total
        self.counters.interactions_without_prefix += episodes * steps
        if self.expansion is not None:
            self.expansion.own_steps += episodes * steps

    def go_to(self, node: int, counted: bool = True) -> None:
        """Put the starts of the next episodes at the end of `node`'s skill, and note what was passed.

        Not `counted`, where it was before, or where nothing follows and it only measures.
        """
        if counted:
            self.spend(self.rollouts.walks, self.prefix(node), 0)
        path = np.zeros(self.capacity, np.int32)
        skills = self.tree.path(node)
        path[: len(skills)] = skills
        length = np.int32(len(skills))
        key = self.key()
        self.starts_key = self.counters.keys
        self.starts, trace = self.rollouts.walk(
            self.method.plan.T, self.arrays.bank, path, length, key
        )
        passed = self.env.space.covered(np.asarray(trace))
        if node not in self._walked:
            self._walked.add(node)
            self.buckets |= passed
        if counted:
            self._visited |= passed

    @property
    def visited(self) -> AbstractSet[int]:
        """Buckets of all states so far, noise and probes included (the way to a node only once).

        Episodes are looked through when this is asked for: by then nobody has to wait for them.
        """
        for features, wants, steps in self._unseen:
            made = np.arange(features.shape[1]) < wants[:, None]
            self._visited |= self.env.space.covered(np.asarray(features)[made, :steps])
        self._unseen.clear()
        return self._visited

    def prefix(self, node: int) -> int:
        """Steps along parents' skills before an episode at `node` begins."""
        return self.method.plan.prefix(self.tree[node].depth)

    def episodes(self, node: int, wants: np.ndarray, mode: int, sigma: float) -> Trajectory:
        """`wants[i]` episodes of the child in slot i, from where `go_to` left us; counted.

        As many are simulated for every slot as the most wanted one: one of a few widths, so that
        few programs are compiled.
        """
        practice, each = self.method.practice, self.method.plan.buffer_episodes
        self.spend(int(wants.sum()), self.prefix(node), self.method.plan.steps)
        width = practice.rollouts if wants.max() <= practice.rollouts else each
        return self.collect(width, wants, self.method.plan.steps, mode, sigma)

    def collect(
        self, width: int, wants: np.ndarray, steps: int, mode: int, sigma: float
    ) -> Trajectory:
        """Episodes from where `go_to` left us, or their first steps; not counted here."""
        got = self.rollouts.collect(
            self.method.plan,
            width,
            self.arrays.learners.actor,
            self.starts,
            np.int32(mode),
            np.float32(sigma),
            wants,
            steps,
            self.key(),
        )
        self._unseen.append((got.features, wants, steps))
        if len(self._unseen) > UNSEEN:
            _ = self.visited
        return got

    def remember(self, episodes: Trajectory, wants: np.ndarray) -> None:
        """The first `wants[i]` episodes of slot i enter the replay buffer."""
        keep = np.arange(episodes.action.shape[1]) < wants[:, None]
        self.set(replay=self.programs.remember(self.arrays.replay, episodes, keep))

        self.stored += int(wants.sum())

    def forget(self) -> None:
        """Empty the replay buffer."""
        self.set(replay=self.arrays.replay.cleared())
        self.stored, self._paid = 0, None

    def pay(self, scores: Scores) -> Table | Lookup:
        """What stored episodes are worth: all of them are judged when the judge has changed, otherwise the new ones."""
        replay, method, known = self.arrays.replay, self.method, self._paid
        capacity, before = len(replay.rows), 0
        if known is not None and known.by(scores):
            worth, before = known.worth, known.stored
        else:
            n, gamma = method.growth.n_max, method.learner.gamma
            worth = method.reward.unpaid(method.plan, replay, n, gamma)
        new = min(self.stored - before, capacity)
        first = (self.stored - new) % capacity
        paid = self.programs.pay(replay, scores, worth, np.int32(first), np.int32(new))
        kept = paid if isinstance(paid, Table) else None  # what is looked up when drawn is not kept
        self._paid = Paid(scores.judge, scores.classes, kept, self.stored)
        return paid

    def spread(self, total: int) -> np.ndarray:
        """`total` episodes spread over the slots of one collection."""
        n, each = self.method.growth.n_max, self.method.plan.buffer_episodes
        return np.clip(total - each * np.arange(n), 0, each)


def labels(run: Discovery) -> np.ndarray:
    """The classes of the children's slots."""
    return np.arange(run.capacity, run.capacity + run.method.growth.n_max, dtype=np.int32)
