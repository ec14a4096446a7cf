"""Reach unknown goals with a run's policies: select one, fine-tune its chain."""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from upside.downstream import rounds, select, tune, tunings
from upside.downstream.episodes import Episodes, discounted, judged
from upside.downstream.reached import EVALUATION, Measured, Reached, Skills
from upside.downstream.tasks import Goal, Task
from upside.downstream.tune import Chain, Tuning
from upside.engine import rollouts
from upside.engine.collect import host_key, words
from upside.nets import stack
from upside.run import Run
from upside.types import UserError, usable_cores

SECONDS = 1.0  # about how long one looks away from the chains in training


class Finetuning:
    """All tasks side by side; between two rounds everything that changes is in `chains` and `history`.

    They are shared out among the cores, one compiled program for all shares, a thread for each core: tasks
    do not depend on one another, so their numbers are the same on any number of cores.
    """

    def __init__(
        self,
        run: Run,
        tasks: list[Task],
        budget: int,
        tuning: Tuning | str | None = None,
        horizon: int | None = None,
        seed: int = 0,
        cores: int = 0,
    ):
        """`tuning` may be a way's name; `cores`: 0 for all there are."""
        if seed < 0:
            raise UserError(f"--seed {seed} is below 0: try 0")
        if seed >= 2**32:
            raise UserError(f"--seed {seed} has more than 32 bits: try {seed % 2**32}")
        self.run, self.tasks, self.budget, self.seed = run, tasks, budget, seed
        if not isinstance(tuning, Tuning):
            tuning = tunings.named(run, "default" if tuning is None else str(tuning))
        self.tuning = tunings.like(run, tuning)
        self.tuning.check()
        self.horizon = horizon or run.method.plan.H_max
        if len(run) < 2 and run.method.growth.max_depth != 0:
            raise UserError("the run has no policies yet: let it run for longer")
        learned, learner = type(run.method.learner), type(self.tuning.learner)
        if len(run) > 1 and learner is not learned:
            raise UserError(
                f"tuning with {learner.__name__}: the run's policies were learned with {learned.__name__}; "
                "leave it out, or take a run without policies"
            )
        policies = select.candidates(run)
        needed = len(policies) * self.tuning.n_explo * self.horizon
        if budget < needed:
            raise UserError(
                f"--budget {budget} is too little to try {len(policies)} policies {self.tuning.n_explo} "
                f"times: give at least {needed}, and some 50,000 more to fine-tune one"
            )
        self.gamma = self.tuning.learner.gamma
        cores = cores or len(usable_cores())
        self.rollouts = rollouts.of(run.env, cores)
        # Shares are alike, so that one program serves them all. Where episodes do not need the host a chain is a
        # share of its own, and whichever core is free takes the next one.
        alike = max(n for n in range(1, cores + 1) if len(tasks) % n == 0)
        self.cores, self.shares = cores, len(tasks) if self.rollouts.inside else alike
        explored = select.explore(run, self.tuning.n_explo, self.horizon, seed, cores=cores)
        self.choices = [
            select.choose(task, self.gamma, explored, policies, self._rng(task)) for task in tasks
        ]
        stages = tune.stages(run, self.choices, self.horizon)
        self.chains = stack(
            [
                tune.chain(run, choice, self.tuning, stages, self.horizon, self._rng(task))
                for task, choice in zip(tasks, self.choices, strict=True)
            ]
        )
        self.budgets = np.array([budget - choice.interactions for choice in self.choices])
        self.together = self._shared(stack(tasks))
        self.rounds, self._began, self._at_a_time = 0, False, 1
        self.history: list[dict[str, Any]] = []
        """A line a round: what each chain has spent, and its noise-free return and best so far."""

    def _rng(self, task: Task) -> np.random.Generator:
        return np.random.default_rng([self.seed, _number(task)])

    @property
    def chains(self) -> Chain:
        """All of them, in the order of the tasks."""
        return self._joined(self._chains)

    @chains.setter
    def chains(self, chains: Chain) -> None:
        self._chains = self._shared(chains)

    def _shared(self, every: Any) -> list[Any]:
        """What belongs to each share; by NumPy, which compiles nothing for it."""
        return [
            jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i :: self.shares], every)
            for i in range(self.shares)
        ]

    def _joined(self, shares: list[Any]) -> Any:
        """Of each share, in the order of the tasks."""

        def join(*leaves: Any) -> np.ndarray:
            return np.stack(leaves, axis=1).reshape(len(self.tasks), *leaves[0].shape[1:])

        return jax.tree.map(join, *shares)

    def each(self, what: Callable[[Chain], Any]) -> np.ndarray:
        """A number of every chain, in the order of the tasks."""
        return self._joined([np.asarray(what(share)) for share in self._chains])

    @property
    def done(self) -> bool:
        return bool(np.all(self._ended()))

    def _ended(self) -> np.ndarray:
        budgets = iter(self._shared(self.budgets))
        return self.each(lambda share: tune.ended(self.tuning, share, next(budgets)))

    @property
    def progress(self) -> float:
        """Share of the work that is done."""
        spent = self.each(lambda share: share.spent) / np.maximum(self.budgets, 1)
        return float(np.mean(np.where(self._ended(), 1.0, np.minimum(spent, 1.0))))

    def advance(self) -> None:
        """As many rounds as take about a second: then somebody may look, or stop."""
        begin, before = time.perf_counter(), self.rounds
        self.step(self._at_a_time)
        each = (time.perf_counter() - begin) / max(self.rounds - before, 1)
        self._at_a_time = int(np.clip(SECONDS / each, 1, rounds.BLOCK))

    def step(self, number: int = 1) -> list[dict[str, Any]]:
        """So many rounds of every chain that is not ended; the lines of `history` that this has added."""
        if not 1 <= number <= rounds.BLOCK:
            raise UserError(f"{number} rounds at a time: give 1 to {rounds.BLOCK}")
        known = len(self.history)
        budgets, keys = self._shared(self.budgets), self._shared(self._words(number))
        works = list(zip(self._chains, self.together, budgets, keys, strict=True))

        def one(share: int) -> tuple[Chain, rounds.Line]:
            T, work = self.run.method.plan.T, works[share]
            return jax.block_until_ready(rounds.block(self.rollouts, self.tuning, T, number, work))

        # The longest ones first, so that all cores are done at about the same time.
        ended = self._shared(self._ended())
        depths = [-np.asarray(share.last).max() for share in self._chains]
        order = np.argsort(depths, kind="stable").tolist()
        order = [share for share in order if not ended[share].all()]
        lines = [rounds.still(share, number) for share in self._chains]
        first = 0 if self._began and self.shares > 1 else 1  # what is compiled is compiled once
        after = [*map(one, order[:first]), *_threads(self.cores).map(one, order[first:])]
        for share, (self._chains[share], line) in zip(order, after, strict=True):
            lines[share] = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :number], line)
        self._began = True
        self._write(self._joined(lines))
        return self.history[known:]

    def _words(self, number: int) -> np.ndarray:
        """Of the tasks' keys, and there must be a BLOCK of them."""
        keys = np.zeros((len(self.tasks), rounds.BLOCK, 2), np.uint32)
        for row, task in zip(keys, self.tasks, strict=True):
            ahead = range(self.rounds + 1, self.rounds + 1 + number)
            row[:number] = [words(self.seed, _number(task), now) for now in ahead]
        return keys

    def _write(self, lines: rounds.Line) -> None:
        """What became of these rounds, but for those that no chain had."""
        for now in np.flatnonzero(lines.went.any(axis=0)):
            self.rounds += 1
            gained = lines.gained[:, now]
            line = {
                "round": self.rounds,
                "spent": lines.spent[:, now].tolist(),
                "return": [float(x) if np.isfinite(x) else None for x in gained],
                "best": lines.best[:, now].tolist(),
            }
            self.history.append(line)

    def state(self) -> dict[str, Any]:
        """What is not an array, ready for JSON."""
        return {"rounds": self.rounds, "history": self.history}

    def restore(self, state: dict[str, Any], chains: Chain) -> None:
        """Go on where `state` was taken."""
        self.rounds, self.history, self.chains = state["rounds"], state["history"], chains

    def curves(self) -> list[list[list[float]]]:
        """For each task, interactions and best noise-free return wherever that rose: selection counts too."""
        curves = []
        for i, choice in enumerate(self.choices):
            rises: list[list[float]] = []
            for line in self.history:
                best = line["best"][i]
                if np.isfinite(best) and (not rises or best > rises[-1][1]):
                    spent = choice.interactions + line["spent"][i]
                    rises.append([float(spent), best])
            curves.append(rises)
        return curves

    def results(self) -> list[Reached]:
        return [self._result(i) for i in range(len(self.tasks))]

    def _result(self, i: int) -> Reached:
        choice, task = self.choices[i], self.tasks[i]
        share, place = self._chains[i % self.shares], i // self.shares
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[place], share)
        # Fresh episodes: it was chosen for those of the selection, so they flatter it.
        seed = int(self._rng(task).integers(2**31))
        fresh = select.as_it_is(self.run, task, choice.policy, EVALUATION, self.horizon, seed)
        before, path_before = Measured.of(fresh, self.gamma), _path(fresh, _best(fresh, self.gamma))
        noise_free, noisy = self._evaluate(task, one)
        finetuned = Measured.of(noise_free, self.gamma)
        tuned = finetuned.reward > before.reward
        best = jax.tree.map(lambda leaf: leaf[: int(one.last) + 1], one.best)
        chain = Skills(best, self.run.method.plan.T, self.run.env.action_size)
        return Reached(
            policy=choice.policy,
            depth=self.run.tree[choice.policy].depth,
            found=choice.found,
            before=before,
            finetuned=finetuned,
            stochastic=Measured.of(noisy, self.gamma),
            after=finetuned if tuned else before,
            tuned=tuned,
            selected=choice.numbers(),
            selection=choice.interactions,
            tuning=int(one.spent),
            path_before=path_before,
            path_after=_path(noise_free, 0) if tuned else path_before,
            skills=chain if tuned else Skills.of(self.run, choice.policy),
        )

    def _evaluate(self, task: Task, one: Chain) -> tuple[Episodes, Episodes]:
        """One noise-free episode of the best actors, and some with noise at every stage, new at every step."""
        env, sigma = self.run.env, self.tuning.learner.sigma
        noise_key, env_key = jax.random.split(host_key(self.seed, _number(task), 0))
        shape = (EVALUATION, self.horizon, env.action_size)
        noise = sigma * jax.random.normal(noise_key, shape)
        noise = jnp.concatenate([jnp.zeros_like(noise[:1]), noise])
        noisy_from = jnp.zeros(EVALUATION + 1, int)
        chain = (one.best, one.last, noise, noisy_from, np.array(True), env_key)
        alone = jax.tree.map(lambda leaf: leaf[None], chain)
        seen = self.rollouts.chase(self.run.method.plan.T, *alone, over=[task.over_at])
        every = _judge(task, *jax.tree.map(lambda leaf: leaf[0], seen))
        noise_free = jax.tree.map(lambda leaf: leaf[:1], every)
        return noise_free, jax.tree.map(lambda leaf: leaf[1:], every)


@functools.cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, "goals")


@jax.jit
def _judge(task: Any, obs: Array, features: Array, action: Array) -> Episodes:
    return jax.vmap(functools.partial(judged, task))(obs, features, action)


def _number(task: Task) -> int:
    """The same number for the same task."""
    return zlib.crc32(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(task)))


def _best(episodes: Episodes, gamma: float) -> int:
    return int(np.argmax(np.asarray(discounted(episodes, gamma))))


def _path(episodes: Episodes, i: int) -> np.ndarray:
    return np.asarray(episodes.features)[i, : int(episodes.length[i]) + 1]


def zero_shot(run: Run, task: Goal, horizon: int | None = None, seed: int = 0) -> Reached:
    """The goal's place is known: the discriminator names the policy (the paper's footnote); no training."""
    if len(run) < 2:
        raise UserError("the run has no policies, so the discriminator has none to name")
    tuning = tunings.default(run)
    q = run.q(np.asarray(task.place)[None])[0]
    policy = int(np.argmax(np.where(run.counts > 0, q, 0.0)))
    horizon, gamma = horizon or run.method.plan.H_max, tuning.learner.gamma
    episodes = select.as_it_is(run, task, policy, tuning.n_explo, horizon, seed)
    found, path = Measured.of(episodes, gamma), _path(episodes, _best(episodes, gamma))
    return Reached(
        policy=policy,
        depth=run.tree[policy].depth,
        found=found.reward > 0,
        before=found,
        finetuned=found,
        stochastic=found,
        after=found,
        tuned=False,
        selected={},
        selection=int(np.asarray(episodes.length).sum()),
        tuning=0,
        path_before=path,
        path_after=path,
        skills=Skills.of(run, policy),
    )
