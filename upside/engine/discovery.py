"""A run in memory: the tree, the arrays behind it, and what one step of discovery does to them.

Large arrays that are trained (learners, replay, discriminator) stay on the device; small ones that
are looked up and edited (bank, state buffers, probes) are NumPy, because editing those on the
device would compile a program for every edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from upside.engine.collect import POLICY, PROBE, RANDOM
from upside.engine.method import Method
from upside.engine.round import programs
from upside.learners import replay as replays
from upside.learners import td3
from upside.models import discriminator as discriminators
from upside.nets import Actor, put, stack
from upside.skills import freespace
from upside.skills.growth import Child, Expansion
from upside.skills.tree import Tree
from upside.types import Environment, Trajectory, UserError

CAPACITY = 128  # consolidated policies before the arrays double


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


class Arrays(eqx.Module):
    """Everything of a run that is an array; saved and restored as one pytree."""

    bank: Actor
    buffers: Float[np.ndarray, "classes B feat"]
    counts: np.ndarray
    probes: Trajectory
    own: Float[np.ndarray, "n B feat"]
    own_counts: np.ndarray
    claims: Float[np.ndarray, "n H feat"]
    ages: np.ndarray
    learners: td3.State
    replay: replays.Replay
    judge: discriminators.State
    kept_actors: Actor
    kept_own: np.ndarray
    kept_counts: np.ndarray
    kept_judge: discriminators.State


class Discovery:
    """UPSIDE's state and its elementary operations. `engine/train.py` puts them in order (Alg. 2)."""

    def __init__(
        self,
        env: Environment,
        method: Method,
        seed: int,
        budget: int,
        devices: int = 1,
        capacity: int = CAPACITY,
    ):
        if not env.deterministic:
            raise UserError(
                f"{env.name} is not deterministic: only deterministic environments can be explored yet"
            )
        self.env, self.method, self.seed, self.budget = env, method, seed, budget
        self.programs = programs(env, method, devices)
        self.tree = Tree()
        self.expansion: Expansion | None = None
        self.counters = Counters()
        self.starts: Any = None
        """Where `go_to` left us; the environment is deterministic, so once is enough for all episodes."""
        self.clearances = np.zeros(0)
        self.starts_key = 0
        self.buckets: set[int] = set()
        self.radius = 0.0
        """How far the root's diffusing part reaches: the unit of distance."""
        self.reach = 0.0
        """How far from consolidated policies a state must be to count as free, at present."""
        self.capacity = capacity
        self._root_key = jax.random.key(seed)
        self.arrays = self._empty()

    # ---------------------------------------------------------------- set-up

    def _empty(self) -> Arrays:
        """Arrays of the right shapes, with nothing in them."""
        method, env = self.method, self.env
        plan, growth, n = method.plan, method.growth, method.growth.n_max
        B, features = plan.buffer_episodes * plan.H, len(env.space.low)
        zero, one = (
            np.zeros(env.observation_size, np.float32),
            np.ones(env.observation_size, np.float32),
        )
        learners = stack([self._learner(zero, one) for _ in range(n)])
        bank = jax.tree.map(
            lambda leaf: np.zeros((self.capacity, *leaf.shape[1:]), leaf.dtype), learners.actor
        )
        episodes = growth.k_steps // plan.steps + n * plan.buffer_episodes + growth.probes
        episodes += 2 * n * -(-growth.k_initial // plan.T)
        zeros = lambda *shape: np.zeros(shape, np.float32)  # noqa: E731
        steps, P = plan.steps, growth.probes
        flags = np.zeros((self.capacity, P, steps), bool)
        parts: list[Any] = [
            zeros(self.capacity, P, steps + 1, env.observation_size),
            zeros(self.capacity, P, steps, env.action_size),
            flags,
            flags.copy(),
            zeros(self.capacity, P, steps, features),
        ]
        probes = Trajectory(*parts)
        center = np.asarray((np.add(env.space.low, env.space.high)) / 2, np.float32)
        scale = np.asarray(np.subtract(env.space.high, env.space.low) / 2, np.float32)
        judge = discriminators.init(
            method.discriminator, self.capacity + n, center, scale, self.rng()
        )
        return Arrays(
            bank=bank,
            buffers=zeros(self.capacity + n, B, features),
            counts=np.zeros(self.capacity + n, np.int32),
            probes=probes,
            own=zeros(n, B, features),
            own_counts=np.zeros(n, np.int32),
            claims=zeros(n, plan.H, features),
            ages=np.zeros(n, np.int32),
            learners=learners,
            replay=replays.init(
                episodes,
                plan.T,
                method.reward.count(plan),
                env.observation_size,
                env.action_size,
                features,
            ),
            judge=judge,
            kept_actors=learners.actor,
            kept_own=zeros(n, B, features),
            kept_counts=np.zeros(n, np.int32),
            kept_judge=judge,
        )

    def grow(self) -> None:
        """Double the room for policies. The only moment at which programs are compiled anew."""
        old, n = self.capacity, self.method.growth.n_max

        def more(leaf: np.ndarray) -> np.ndarray:
            return np.concatenate([leaf, np.zeros_like(leaf[:old])])

        def split(leaf: np.ndarray) -> np.ndarray:
            """The children's rows stay last."""
            return np.concatenate([leaf[:old], np.zeros_like(leaf[:old]), leaf[old:]])

        arrays = self.arrays
        self.set(
            bank=jax.tree.map(more, arrays.bank),
            probes=jax.tree.map(more, arrays.probes),
            buffers=split(arrays.buffers),
            counts=split(arrays.counts),
            judge=discriminators.widen(arrays.judge, old, 2 * old + n, self.rng()),
            kept_judge=discriminators.widen(arrays.kept_judge, old, 2 * old + n, self.rng()),
        )
        self.capacity = 2 * old

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
            "radius": self.radius,
            "reach": self.reach,
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
            fresh.programs.devices,
            state["capacity"],
        )
        run.arrays = fill(run.arrays)
        run.tree = Tree.from_json(state["nodes"])
        run.expansion = Expansion.from_json(state["expansion"]) if state["expansion"] else None
        run.counters = Counters(**state["counters"])
        run.buckets = set(state["buckets"])
        run.radius, run.reach = state["radius"], state["reach"]
        if run.expansion is not None:
            keys, run.counters.keys = run.counters.keys, state["starts_key"] - 1
            run.go_to(run.expansion.node)
            run.counters.keys = keys
        return run

    def key(self) -> PRNGKeyArray:
        """A key never used before: the seed's key folded with a counter that is part of the state."""
        self.counters.keys += 1
        return jax.random.fold_in(self._root_key, self.counters.keys)

    def rng(self) -> np.random.Generator:
        """The same for what is drawn on the host: the first values of new networks."""
        self.counters.keys += 1
        return np.random.default_rng([self.seed, self.counters.keys])

    def _learner(self, center: np.ndarray, scale: np.ndarray) -> td3.State:
        return td3.init(self.method.learner, center, scale, self.env.action_size, self.rng())

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

    def go_to(self, node: int) -> None:
        """Put the starts of the next episodes at the end of `node`'s skill, and note what was passed."""
        path = np.zeros(self.capacity, np.int32)
        skills = self.tree.path(node)
        path[: len(skills)] = skills
        length = np.int32(len(skills))
        key = self.key()
        self.starts_key = self.counters.keys
        self.starts, trace = self.programs.walk(self.arrays.bank, path, length, key)
        passed = self.env.space.bucket(np.asarray(trace))
        self.buckets |= set(passed[passed >= 0].tolist())

    def prefix(self, node: int) -> int:
        """Steps along parents' skills before an episode at `node` begins."""
        return self.tree[node].depth * self.method.plan.T

    def episodes(self, node: int, wants: np.ndarray, mode: int, sigma: float) -> Trajectory:
        """`wants[i]` episodes of the child in slot i, from where `go_to` left us; counted."""
        self.spend(int(wants.sum()), self.prefix(node), self.method.plan.steps)
        actors = self.arrays.learners.actor
        return self.programs.collect(
            actors, self.starts, np.int32(mode), np.float32(sigma), self.key()
        )

    def remember(self, episodes: Trajectory, wants: np.ndarray) -> None:
        """The first `wants[i]` episodes of slot i enter the replay buffer."""
        keep = np.arange(self.method.plan.buffer_episodes) < wants[:, None]
        self.set(replay=self.programs.remember(self.arrays.replay, episodes, keep))

    def _spread(self, total: int) -> np.ndarray:
        """`total` episodes spread over the slots of one collection."""
        n, each = self.method.growth.n_max, self.method.plan.buffer_episodes
        return np.clip(total - each * np.arange(n), 0, each)

    # ---------------------------------------------------------------- root and probes

    def plant(self) -> None:
        """The root: a state buffer from the diffusing part around s_0, which also sets the scale."""
        plan, space = self.method.plan, self.env.space
        self.go_to(0)
        self.spend(plan.buffer_episodes, 0, plan.H)
        episodes = self.programs.collect(
            self.arrays.learners.actor, self.starts, np.int32(RANDOM), np.float32(0), self.key()
        )
        # A diffusing part is H uniformly random steps: the first H of a random episode.
        around = np.asarray(episodes.features[0, :, : plan.H]).reshape(-1, len(space.low))
        self.arrays.buffers[0], self.arrays.counts[0] = around, len(around)
        self.radius = self.reach = freespace.radius(around)
        if self.method.discriminator.feature_scale:
            unit = np.full(len(space.low), self.method.discriminator.feature_scale * self.radius)
            scaled = eqx.tree_at(
                lambda judge: judge.scale, self.arrays.judge, jnp.asarray(unit, jnp.float32)
            )
            self.set(judge=scaled)
        self.probe(0)

    def probe(self, node: int) -> None:
        """Look for free space around `node`, where `go_to` left us; kept for its expansion."""
        wanted, done = self.method.growth.probes, 0
        while done < wanted:
            wants = self._spread(wanted - done)
            got = self.episodes(node, wants, PROBE, 0.0)
            taken = np.arange(self.method.plan.buffer_episodes) < wants[:, None]
            for store, new in zip(self.arrays.probes, got, strict=True):
                store[node, done : done + wants.sum()] = np.asarray(new)[taken]
            done += int(wants.sum())

    def claims(self, node: int) -> list[int]:
        """Free probes of `node` that are free of one another, without those tried too often in vain."""
        plan, growth = self.method.plan, self.method.growth
        states = np.asarray(self.arrays.probes.features[node, :, plan.T :])
        gaps = np.where(self._tries(node)[:, None] < growth.tries, self.clearances[node], 0.0)
        return freespace.mutually_free(states, gaps, self.reach, growth.free_share, growth.n_max)

    def gain(self, node: int) -> float:
        """Free space that `node`'s claims would take, per interaction; half for every time one was in vain."""
        claims = self.claims(node)
        space = np.minimum(self.clearances[node, claims].mean(-1), 3 * self.radius)
        worth = float(np.sum(space * 0.5 ** self._tries(node)[claims]))
        return worth / (self.prefix(node) + self.method.plan.steps)

    def _tries(self, node: int) -> np.ndarray:
        """How often each probe of `node` was claimed in vain."""
        return np.bincount(self.tree[node].tried, minlength=self.method.growth.probes)

    def measure_free_space(self) -> None:
        """Distance of every probe's diffusing states to the nearest consolidated state buffer."""
        n = len(self.tree)
        taken = self.arrays.buffers[:n].reshape(-1, self.arrays.buffers.shape[-1])
        states = np.asarray(self.arrays.probes.features[:n, :, self.method.plan.T :])
        self.clearances = freespace.clearance(states, taken)

    # ---------------------------------------------------------------- children

    def spawn(self, x: Expansion) -> None:
        """One more policy in training: a fresh learner, a fresh class, data to start from."""
        growth = self.method.growth
        slot = x.free_slot(growth.n_max)
        child = Child(slot, x.waiting.pop(0) if growth.probes else None, not growth.claim)
        x.children.append(child)
        if growth.k_initial:
            self._initial_data(x.node)
        learner = self._learner(*self._outlook())
        ages = np.array(self.arrays.ages)
        ages[slot] = 0
        self.set(
            learners=put(self.arrays.learners, slot, learner),
            ages=ages,
            judge=discriminators.renew(self.arrays.judge, self.capacity + slot, self.rng()),
        )
        self.arrays.own_counts[slot] = 0
        if child.claim is not None:
            states = self.arrays.probes.features[x.node, child.claim, self.method.plan.T :]
            self.arrays.claims[slot] = states

    def _initial_data(self, node: int) -> None:
        """K_initial uniformly random transitions into the replay buffer (App. B)."""
        episodes = -(-self.method.growth.k_initial // self.method.plan.T)
        while episodes > 0:
            wants = self._spread(episodes)
            self.remember(self.episodes(node, wants, RANDOM, 0.0), wants)
            episodes -= int(wants.sum())

    def _outlook(self) -> tuple[np.ndarray, np.ndarray]:
        """Where a new skill sees the world from (its start), and in which unit (how far its data went)."""
        replay, o = self.arrays.replay, self.env.observation_size
        seen = np.asarray(replay.rows)[: int(replay.size), :, -1 - o : -1].reshape(-1, o)
        center = np.asarray(self.starts[1])[0]
        scale = np.sqrt(np.mean((seen - center) ** 2, axis=0))
        return center, np.maximum(scale, 1e-3).astype(np.float32)

    def begin(self, node: int, claims: list[int]) -> None:
        """Dequeue `node`: a new replay buffer, its probes in it, N_start children (Alg. 2, lines 3-5)."""
        growth = self.method.growth
        self.counters.expansions += 1
        self.tree[node].expansions += 1
        self.set(replay=replays.clear(self.arrays.replay))
        if not self.method.discriminator.keep_discriminator:
            self.new_discriminator()
        self.arrays.own_counts[:] = 0
        self.go_to(node)
        self._remember_probes(node)
        self.expansion = x = Expansion(node, [], claims)
        for _ in range(min(growth.n_start, len(claims)) if growth.probes else growth.n_start):
            self.spawn(x)

    def _remember_probes(self, node: int) -> None:
        """A node's probes are the first data of its expansion."""
        probes = jax.tree.map(lambda leaf: leaf[node], self.arrays.probes)
        n, each = self.method.growth.n_max, self.method.plan.buffer_episodes
        for first in range(0, self.method.growth.probes, n * each):
            wants = self._spread(self.method.growth.probes - first)

            def pad(leaf: np.ndarray, first: int = first, wants: np.ndarray = wants) -> np.ndarray:
                out = np.zeros((n, each, *leaf.shape[1:]), leaf.dtype)
                out[np.arange(each) < wants[:, None]] = leaf[first : first + wants.sum()]
                return out

            self.remember(jax.tree.map(pad, probes), wants)

    # ---------------------------------------------------------------- one round of POLICYLEARNING

    def train(self, x: Expansion) -> None:
        """J times: a noisy rollout of each child in training, then K_pol updates of each."""
        growth = self.method.growth
        children = [c for c in x.children if not c.frozen]
        wants = np.where(x.slots(children, growth.n_max), growth.rollouts, 0)
        for _ in range(growth.j):
            episodes = self.episodes(x.node, wants, POLICY, self.method.learner.sigma)
            self.remember(episodes, wants)
            if not growth.fresh:
                self._note(children, episodes, growth.rollouts)
            self._learn(x, children, growth.k_pol)

    def rehearse(self, x: Expansion) -> None:
        """The discriminator learns what was claimed, new policies what the replay buffer holds already."""
        growth = self.method.growth
        if growth.claim:
            self.judge(x, self.method.discriminator.k_discr)
        if growth.claim and growth.rehearsal:
            new = [c for c in x.children if not self.arrays.ages[c.slot]]
            self._learn(x, new, growth.rehearsal)

    def _learn(self, x: Expansion, children: list[Child], updates: int) -> None:
        arrays = self.arrays
        self._place(x)
        classes = (self.weights(x) > 0) & (arrays.counts > 0)
        learners, ages = self.programs.learn(
            arrays.learners,
            arrays.ages,
            arrays.replay,
            arrays.judge,
            classes,
            self._labels(),
            x.slots(children, self.method.growth.n_max),
            np.int32(updates),
            self.key(),
        )
        if self.programs.devices > 1:  # what else is computed stays on the first device
            learners = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), learners)
        self.set(learners=learners, ages=np.asarray(ages))

    def observe(self, x: Expansion, children: list[Child], episodes: int) -> None:
        """Noise-free episodes of `children` into their own state buffers."""
        wants = np.where(x.slots(children, self.method.growth.n_max), episodes, 0)
        if not wants.any():
            return
        got = self.episodes(x.node, wants, POLICY, 0.0)
        if self.method.growth.reuse:
            self.remember(got, wants)
        self._note(children, got, episodes)

    def _note(self, children: list[Child], got: Trajectory, episodes: int) -> None:
        """Diffusing states into the children's own state buffers, newest first."""
        states = np.asarray(got.features[:, :episodes, self.method.plan.T :])
        own, counts = self.arrays.own, self.arrays.own_counts
        for child in children:
            new = states[child.slot].reshape(-1, own.shape[-1])
            own[child.slot] = np.concatenate([new, own[child.slot]])[: own.shape[1]]
            counts[child.slot] = min(counts[child.slot] + len(new), own.shape[1])

    def judge(self, x: Expansion, steps: int) -> None:
        """Fit the discriminator for `steps` and tell every child its discriminability.

        A child in training is scored on its newest episodes, a frozen one on its whole buffer.
        """
        plan, growth, arrays = self.method.plan, self.method.growth, self.arrays
        self._place(x)
        recent = np.minimum(arrays.own_counts, (growth.fresh or growth.rollouts) * plan.H)
        scored = np.where(
            x.slots([c for c in x.children if c.frozen], growth.n_max), arrays.own_counts, recent
        ).astype(np.int32)
        judge, d = self.programs.judge(
            arrays.judge,
            arrays.buffers,
            arrays.counts,
            self.weights(x),
            arrays.own,
            scored,
            self._labels(),
            np.int32(steps),
            np.float32(self.method.discriminator.jitter * self.radius),
            self.key(),
        )
        self.set(judge=judge)
        values = np.asarray(d)
        for child in x.children:
            child.d = float(values[child.slot])

    def _place(self, x: Expansion) -> None:
        """What each child's class is fitted on: its own states, or the probe it has claimed."""
        arrays = self.arrays
        for child in x.children:
            row = self.capacity + child.slot
            count = int(arrays.own_counts[child.slot])
            states = arrays.own[child.slot, :count] if child.arrived else arrays.claims[child.slot]
            arrays.buffers[row, : len(states)] = states
            arrays.counts[row] = len(states)

    def weights(self, x: Expansion | None) -> np.ndarray:
        """How often each class is drawn: consolidated policies more often, those in training once."""
        weights = np.zeros(len(self.arrays.counts), np.float32)
        weights[: len(self.tree)] = self.method.discriminator.consolidated_weight
        if x is not None:
            weights[[self.capacity + c.slot for c in x.children]] = 1.0
        return weights

    def _labels(self) -> np.ndarray:
        """The classes of the children's slots."""
        return np.arange(self.capacity, self.capacity + self.method.growth.n_max, dtype=np.int32)

    def new_discriminator(self) -> None:
        """Start afresh, as App. B does at every call of POLICYLEARNING."""
        old = self.arrays.judge
        self.set(
            judge=discriminators.init(
                self.method.discriminator,
                len(self.arrays.counts),
                np.asarray(old.center),
                np.asarray(old.scale),
                self.rng(),
            )
        )

    # ---------------------------------------------------------------- consolidation

    def keep(self, x: Expansion) -> None:
        """Remember the set that meets the constraint, before a policy is added to it."""
        x.kept = [dataclasses.replace(c) for c in x.children]
        arrays = self.arrays
        self.set(
            kept_actors=arrays.learners.actor,
            kept_own=arrays.own.copy(),
            kept_counts=arrays.own_counts.copy(),
            kept_judge=arrays.judge,
        )

    def restore(self, x: Expansion) -> None:
        """Back to the last set that met the constraint."""
        learners = dataclasses.replace(self.arrays.learners, actor=self.arrays.kept_actors)
        self.set(learners=learners, own=self.arrays.kept_own, own_counts=self.arrays.kept_counts)
        lost = {c.slot for c in x.children} - {c.slot for c in x.kept}
        self._give_back([c for c in x.children if c.slot in lost], x)
        x.children, x.kept = x.kept, []

    def drop(self, x: Expansion, child: Child) -> None:
        """Remove a policy from the set in training."""
        x.children.remove(child)
        self._give_back([child], x)

    def _give_back(self, children: list[Child], x: Expansion) -> None:
        for child in children:
            self.arrays.counts[self.capacity + child.slot] = 0
            if child.claim is not None:
                self.tree[x.node].tried.append(child.claim)

    def discriminabilities(self, x: Expansion | None) -> np.ndarray:
        """d(z) of every class on its state buffer, with the children of `x` as classes too."""
        arrays = self.arrays
        classes = (self.weights(x) > 0) & (arrays.counts > 0)
        labels = np.arange(len(arrays.counts), dtype=np.int32)
        return np.asarray(
            self.programs.score(arrays.judge, arrays.buffers, arrays.counts, labels, classes)
        )

    def consolidate(self, x: Expansion) -> list[int]:
        """The children become nodes of the tree, with the numbers that follow."""
        while len(self.tree) + len(x.children) > self.capacity:
            self.grow()
        arrays = self.arrays
        moved = np.arange(len(arrays.counts), dtype=np.int32)
        new = []
        for child in x.children:
            node = self.tree.add(x.node, child.d, self.counters.interactions)
            new.append(node)
            count = int(arrays.own_counts[child.slot])
            arrays.buffers[node], arrays.counts[node] = arrays.own[child.slot], count
            arrays.counts[self.capacity + child.slot] = 0
            moved[node] = self.capacity + child.slot
            jax.tree.map(
                lambda bank, actors, node=node, slot=child.slot: bank.__setitem__(
                    node, np.asarray(actors[slot])
                ),
                arrays.bank,
                arrays.learners.actor,
            )
        self.set(judge=discriminators.move(arrays.judge, moved))
        self.expansion = None
        return new
