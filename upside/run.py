"""A discovered tree of skills, loaded: inspect it, roll policies out, measure it, draw it.

Loading reads JSON and safetensors; no training code runs and nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from upside.engine import rollouts
from upside.engine.method import Method
from upside.engine.rollouts import Executed
from upside.nets import MLP, Actor
from upside.runs import Config, RunDirectory, flatten, unflatten
from upside.skills.tree import Tree
from upside.types import UserError, World, as_arguments, number, usable_cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """Every policy of a tree, executed: what its directed skills pass, and where it diffuses."""

    directed: list[Float[np.ndarray, "_ feat"]]
    """Features along the whole chain of skills, s_0 first, one array a policy."""
    diffusing: Float[np.ndarray, "policies episodes H feat"]
    """Features of the states of the diffusing parts."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run has found: the tree, its skills, state buffers and discriminator."""

    config: Config
    env: World
    method: Method
    tree: Tree
    actors: Actor
    """The skills, stacked; row 0 (the root) is empty."""
    buffers: Float[np.ndarray, "policies B feat"]
    counts: Int[np.ndarray, " policies"]
    """States in each state buffer; none for the root of a method without diffusing parts."""
    judge: Any
    summary: dict[str, Any]
    """Counters: interactions, seconds, why it ended, ..."""
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """One entry a round: interactions, policies, discriminabilities in training, ..."""

    _made: dict[tuple[int, int], Rollouts] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        """Number of policies, the root included."""
        return len(self.tree)

    def __repr__(self) -> str:
        config, spent = self.config, self.summary["interactions"]
        return (
            f"<Run of {config.method} on {config.env}, seed {config.seed}: "
            f"{len(self) - 1} policies, {spent:,} interactions>"
        )

    @classmethod
    def load(cls, path: str | Path, env: World | None = None) -> Run:
        """Read a run directory; `env` only if it was given in Python."""
        directory = RunDirectory.open(path)
        config = directory.config()
        saved, arrays = directory.load_tree()
        method = config.build()
        return cls(
            config=config,
            env=config.environment(env),
            method=method,
            tree=Tree.from_json(saved["nodes"]),
            actors=method.learner.acts(
                saved_mlp(arrays, "bank.mlp"),
                jnp.asarray(arrays["bank.center"]),
                jnp.asarray(arrays["bank.scale"]),
            ),
            buffers=arrays["buffers"],
            counts=arrays["counts"],
            judge=_judge(method, arrays),
            summary=saved["summary"],
            history=directory.load_metrics(),
        )

    @as_arguments()
    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the tree to a new run directory (without checkpoints: it can be used, not resumed)."""
        directory = RunDirectory.create(path, self.config, overwrite)
        directory.save_tree({"nodes": self.tree.to_json(), "summary": self.summary}, self.arrays())
        directory.save_metrics(self.history)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything of `tree.safetensors`."""
        kept = {"bank": self.actors, "buffers": self.buffers, "counts": self.counts}
        return flatten({**kept, "judge": self.judge})

    def actor(self, policy: int) -> Actor:
        """The directed skill of one policy: a function from observations to actions."""
        self._check(policy)
        if not policy:
            raise UserError(
                "policy 0 is the root, a diffusing part without a skill: take 1 or more"
            )
        return jax.tree.map(lambda leaf: leaf[policy], self.actors)

    def rollout(
        self, policy: int, seed: int = 0
    ) -> tuple[Float[np.ndarray, "steps obs"], Float[np.ndarray, "H obs"]]:
        """Execute one policy: its chain of directed skills, then its diffusing part."""
        self._check(policy)
        walked, _, after, _ = self._execute(np.asarray([policy]), 1, seed)
        steps = self.tree[policy].depth * self.method.plan.T + 1
        return np.asarray(walked)[0, 0, :steps], np.asarray(after)[0, 0]

    def rollouts(self, episodes: int = 10, seed: int = 0) -> Rollouts:
        """Execute every policy `episodes` times (the directed part is noise-free); asked again, the same is returned."""
        if (episodes, seed) in self._made:
            return self._made[episodes, seed]
        _, walked, _, after = self._execute(np.arange(len(self)), episodes, seed)
        T = self.method.plan.T
        directed = [
            np.asarray(walked[z, 0, : self.tree[z].depth * T + 1]) for z in range(len(self))
        ]
        made = self._made[episodes, seed] = Rollouts(directed, np.asarray(after))
        return made

    def _execute(self, policies: np.ndarray, episodes: int, seed: int) -> Executed:
        paths, lengths = self.paths(policies.tolist())
        plan, cores = self.method.plan, len(usable_cores())
        return rollouts.of(self.env, cores).execute(
            plan.T, plan.H, episodes, self.actors, paths, lengths, jax.random.key(seed)
        )

    def paths(self, policies: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The skills that each policy executes, padded, and how many they are."""
        depth = max(1, *(n.depth for n in self.tree.nodes))
        paths, lengths = (
            np.zeros((len(policies), depth), np.int32),
            np.zeros(len(policies), np.int32),
        )
        for row, z in enumerate(policies):
            path = self.tree.path(z)
            paths[row, : len(path)], lengths[row] = path, len(path)
        return paths, lengths

    def q(self, features: Float[np.ndarray, "*n feat"]) -> Float[np.ndarray, "*n policies"]:
        """The discriminator's q(z | s) over all policies."""
        classes = jnp.asarray(self.counts > 0)
        return np.exp(np.asarray(self.judge.log_prob(jnp.asarray(features), classes)))

    def coverage(self, **options: Any) -> dict[str, Any]:
        """Buckets covered and the rest of `upside coverage`."""
        from upside.evaluate.coverage import report

        return report(self, **options)

    @as_arguments()
    def reach(
        self,
        goal: Any,
        radius: float = 1.0,
        budget: int = 300_000,
        seed: int = 0,
        tuning: Any = None,
    ) -> Any:
        """Fine-tune the most promising policy for a goal (`downstream.reached.Reached`).

        `goal` is a place, or a reward function of your own: from the features of an episode's states,
        one row a step, to a reward for each, written with `jax.numpy`. `tuning` is a
        `downstream.tune.Tuning`, or the name of one: default, td3, sac or icm.
        """
        from upside.downstream import tasks
        from upside.downstream.reach import Finetuning

        radius = number("radius", radius)
        budget, seed = number("budget", budget, whole=True), number("seed", seed, whole=True)
        own = callable(goal)
        task = tasks.reward(self.env, goal) if own else tasks.goal(self.env, goal, radius)
        tuned = Finetuning(self, [task], budget, tuning, seed=seed)
        while not tuned.done:
            tuned.advance()
        return tuned.results()[0]

    def plot(self, figure: str, path: str | Path | None = None) -> Figure:
        """Draw one of the figures of `upside.figures` by name; saved if `path` is given."""
        from upside import figures

        return figures.draw(figure, self, path)

    @as_arguments()
    def film(self, policy: int, path: str | Path, seed: int = 0, fps: int = 25) -> Path:
        """A policy as a moving picture, .gif or .mp4: its chain of skills, then its diffusing part."""
        from upside import film

        film.make(self, policy, Path(path), seed, fps)
        return Path(path)

    def _check(self, policy: int) -> None:
        if not 0 <= policy < len(self):
            raise UserError(f"policy {policy} does not exist: this run has 0 to {len(self) - 1}")


def saved_mlp(arrays: dict[str, np.ndarray], prefix: str) -> MLP:
    """An MLP of whatever size was saved."""
    mlp = object.__new__(MLP)
    for field in ("weights", "biases"):
        names = sorted(n for n in arrays if n.startswith(f"{prefix}.{field}."))
        object.__setattr__(mlp, field, tuple(jnp.asarray(arrays[n]) for n in names))
    return mlp


def _judge(method: Method, arrays: dict[str, np.ndarray]) -> Any:
    """A judge of the method's kind, as it was saved."""
    center, scale = arrays["judge.center"], arrays["judge.scale"]
    classes = len(arrays["counts"])
    empty = method.judge.init(classes, center, scale, np.random.default_rng(0))
    return unflatten({"judge": empty.settled()}, arrays)["judge"]
