"""Fine-tune the whole chain of a policy's skills on a task (Sect. 4, App. C).

Stage k of a chain acts from step k T on: the skills of the policy's path, T steps each, then a new
skill, in the diffusing part's place, until H_max. Each stage is a learner of its own, with actor and critics
that see the world from where the skill starts. The task of a stage but the last ends with its T-th step, where it is
paid what the next stage's critics say the state is worth that it hands over,

    y_T = r_T + γ V_{k+1}(s_T),

so a chain learns as skills do in discovery, with the next stage in the discriminator's place. Neither
time nor stage is an input. Stages are updated from the last to the first, and no action is valued below
what its own episode achieved (self-imitation), so that a reward at the end of a long chain reaches its first skill
in the first round. Actors are drawn to the actions of the best episode so far, so that what was done once by chance is
repeated, and bettered from there. Noise begins at a random stage of each episode, so that later stages also
practise from the starts they know, and is held for some steps, so that it goes somewhere. Until the task has paid
at all, one episode a round acts at random: there is nothing to go by yet.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree

from upside.downstream.episodes import NEVER, Episodes, Store, discounted, empty
from upside.downstream.select import Choice
from upside.learners import replay
from upside.learners.td3 import TD3, Batch
from upside.models.curiosity import NoBonus, Transitions
from upside.nets import Actor, stack
from upside.run import Run
from upside.types import UserError, at_least

BEST = 0.5  # of a batch is the best episode, where actors imitate
RECIPE = 7  # counts the ways of fine-tuning whose results differ: a request of another one is not gone on with


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How chains are fine-tuned; the same for every method."""

    learner: Any = dataclasses.field(default_factory=lambda: TD3(imitation=1.0))
    """TD3 or SAC, as the skills were learned."""
    bonus: Any = dataclasses.field(default_factory=NoBonus)
    """What is paid beside the task's own reward: nothing, or curiosity (ICM)."""
    n_explo: int = 10
    """N_explo, episodes of every policy to choose one (paper: 10)."""
    rollouts: int = 2
    """Noisy episodes a round, beside one without noise that says how good the chain is."""
    eager: bool = False
    """Learn before the task has paid at all: right where nothing was learned before, that could be lost."""
    updates: int = 40
    """Updates of every stage a round."""
    warmup: int = 400
    """Updates of the critics before the actors move: what the skills are worth is not known at first."""
    hold: int = 10
    """Steps for which exploration noise is held."""
    search: float = 10.0
    """So many times as large is the noise of one episode a round until the task has paid: its actions are random."""
    search_hold: int = 10
    """Steps for which these are held, whoever learns."""
    episodes: int = 256
    """Episodes that are stored: the best so far, and the newest."""
    patience: int = 100
    """Rounds without a better noise-free episode, once the task was solved in one, before a chain is left as it is."""

    def check(self) -> None:
        at_least(
            self, 1, "n_explo", "rollouts", "updates", "hold", "search_hold", "episodes", "patience"
        )
        at_least(self, 0, "warmup", "search")
        if self.episodes <= max(self.n_explo, self.rollouts + 1):
            raise UserError(
                f"--episodes {self.episodes} is too few: all of a round must fit, and --n-explo, and the best"
            )
        self.learner.check()
        self.bonus.check()


class Chain(eqx.Module):
    """One chain in training: all that is needed to go on."""

    stages: PyTree
    """A learner's state for each stage, padded."""
    last: Int[Array, ""]
    unit: Float[Array, ""]
    """The largest return seen in selection: critics learn rewards in this unit (for a goal that was found it is 1)."""
    store: Store
    bonus: PyTree
    """What the bonus remembers."""
    best: Actor
    """The actors of the best noise-free episode so far."""
    best_return: Float[Array, ""]
    stalled: Int[Array, ""]
    """Rounds since it was last better than ever before."""
    age: Int[Array, ""]
    """Updates of every stage."""
    spent: Int[Array, ""]
    """Interactions."""


def chain(
    run: Run,
    choice: Choice,
    tuning: Tuning,
    stages: int,
    horizon: int,
    rng: np.random.Generator,
) -> Chain:
    """The chain of the chosen policy, its skills as they were found, a new one at its end."""
    path, T = run.tree.path(choice.policy), run.method.plan.T
    # To index JAX's arrays takes a hundred times as long.
    skills = jax.tree.map(np.asarray, run.actors)
    learners: list[Any] = []
    for k in range(stages):
        if k < len(path):
            actor = jax.tree.map(lambda leaf, z=path[k]: leaf[z], skills)
            center, scale = np.asarray(actor.center), np.asarray(actor.scale)
        else:
            actor, (center, scale) = None, _outlook(choice.episodes, len(path) * T)
            if path:  # no smaller than its parent's: of a goal that is met at once next to nothing was seen
                scale = np.maximum(scale, np.asarray(learners[-1].actor.scale))
        state = tuning.learner.init(center, scale, run.env.action_size, rng)
        if actor is not None:
            state = tuning.learner.begin(state, actor)
        learners.append(state)
    last = len(path) if len(path) * T < horizon else len(path) - 1
    together = stack(learners)
    sizes = (run.env.observation_size, len(run.env.space.low), run.env.action_size)
    store = empty(tuning.episodes, horizon, *sizes)
    return Chain(
        together,
        jnp.asarray(last),
        jnp.asarray(_unit(choice.episodes, tuning.learner.gamma)),
        _added(store, choice.episodes, tuning.learner.gamma),
        tuning.bonus.init(run.env.observation_size, run.env.action_size, rng),
        together.actor,
        jnp.asarray(-jnp.inf),
        jnp.zeros((), int),
        jnp.zeros((), int),
        jnp.zeros((), int),
    )


_added = jax.jit(Store.add, static_argnums=2)


@functools.partial(jax.jit, static_argnums=0)
def ended(tuning: Tuning, chains: Chain, budgets: Int[Array, "*n"]) -> Bool[Array, "*n"]:
    """Whose budget has no room for another round, or who gets no better."""
    # Other than 0: rewards of one's own may be costs.
    solved = jnp.isfinite(chains.best_return) & (chains.best_return != 0)
    horizon = chains.store.episodes.reward.shape[-1]
    no_room = chains.spent + (tuning.rollouts + 1) * horizon > budgets
    return no_room | (solved & (chains.stalled >= tuning.patience))


def _unit(episodes: Episodes, gamma: float) -> np.float32:
    largest = np.abs(np.asarray(replay.returns(episodes.reward, gamma))).max()
    return np.float32(largest if largest > 0 else 1.0)


def stages(run: Run, choices: list[Choice], horizon: int) -> int:
    """Stages of the longest chain."""
    T = run.method.plan.T
    lengths = [len(run.tree.path(choice.policy)) for choice in choices]
    return max(n + (n * T < horizon) for n in lengths)


def _outlook(episodes: Episodes, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a new skill sees the world from, and in which unit: how far went what followed.

    Of the steps that were counted: what a simulator would do after an episode is over, nobody has seen.
    """
    obs, length = np.asarray(episodes.obs), np.asarray(episodes.length)
    first = np.minimum(step, length)
    center = obs[np.arange(len(obs)), first].mean(axis=0)
    t = np.arange(obs.shape[1])
    seen = (t >= first[:, None]) & (t <= length[:, None])
    scale = np.sqrt(np.mean((obs[seen] - center) ** 2, axis=0))
    return center.astype(np.float32), np.maximum(scale, 1e-3).astype(np.float32)


# -------------------------------------------------------------------- one round of one chain


def chances(
    tuning: Tuning, one: Chain, key: PRNGKeyArray
) -> tuple[Array, Array, PRNGKeyArray, PRNGKeyArray]:
    """What chance decides of a round: noise, from which stage on, and keys for episodes and updates.

    The first episode is without noise.
    """
    key, from_key, noise_key, env_key = jax.random.split(key, 4)
    n, (_, steps, size) = tuning.rollouts + 1, one.store.episodes.action.shape
    sigma, shape = tuning.learner.sigma, (n, steps, size)
    noise = sigma * held(tuning.hold, shape, noise_key)
    wide = sigma * held(tuning.search_hold, shape, noise_key)[1] * tuning.search
    paid = (one.store.episodes.reward != 0).any()
    noise = noise.at[1].set(jnp.where(paid, noise[1], wide))
    noisy_from = jax.random.randint(from_key, (n,), 0, one.last + 1).at[0].set(NEVER)
    return noise, noisy_from, env_key, key


def held(hold: int, shape: tuple[int, int, int], key: PRNGKeyArray) -> Float[Array, "n steps act"]:
    """Normal numbers, each held for `hold` steps, in every episode from another step on."""
    n, steps, size = shape
    drawn_key, from_key = jax.random.split(key)
    drawn = jax.random.normal(drawn_key, (n, steps // hold + 2, size))
    which = (jnp.arange(steps) + jax.random.randint(from_key, (n, 1), 0, hold)) // hold
    return jnp.take_along_axis(drawn, which[..., None], axis=1)


def practise(
    tuning: Tuning, T: int, one: Chain, new: Episodes, key: PRNGKeyArray
) -> tuple[Chain, Array]:
    """Store a round's episodes, update every stage; also the noise-free return."""
    gained = discounted(jax.tree.map(lambda leaf: leaf[0], new), tuning.learner.gamma)
    better = gained >= one.best_return
    store = one.store.add(new, tuning.learner.gamma)
    seen = (store.episodes.reward != 0).any() | tuning.eager
    learned, bonus = jax.lax.cond(
        seen,
        lambda: learn(tuning, T, one, store.episodes, store.size, key),
        lambda: (one.stages, one.bonus),
    )
    after = Chain(
        learned,
        one.last,
        one.unit,
        store,
        bonus,
        jax.tree.map(lambda a, b: jnp.where(better, a, b), one.stages.actor, one.best),
        jnp.maximum(gained, one.best_return),
        jnp.where(gained > one.best_return, 0, one.stalled + 1),
        one.age + jnp.where(seen, tuning.updates, 0),
        one.spent + new.length.sum(),
    )
    return after, gained


def learn(
    tuning: Tuning, T: int, one: Chain, stored: Episodes, size: Array, key: PRNGKeyArray
) -> tuple[PyTree, PyTree]:
    """`updates` of every stage, from the last to the first; and of what the bonus is computed from."""
    # Returns are of the order of one, so what SAC's entropy adds up to must be too.
    learner = tuning.learner.paid_in(1.0 - tuning.learner.gamma)
    horizon = stored.reward.shape[-1]
    capacity, padded = stored.length.shape[0], len(one.stages.actor.center)
    rewards = stored.reward / one.unit
    achieved = replay.returns(rewards, learner.gamma)
    rounds = -(-tuning.updates // learner.policy_delay)
    shape = (rounds, learner.policy_delay, learner.batch_pol)
    filled = jnp.arange(capacity) < size
    # How much better the best episode is than the worst: no other zero of the reward would change that.
    repeat = achieved[0, 0] - jnp.min(jnp.where(filled, achieved[:, 0], jnp.inf))

    def update_stage(i: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        every, bonus = carry
        k = one.last - i
        begin = k * T
        end = jnp.where(k == one.last, horizon, begin + T)
        state, following = _pick(every, k), _pick(every, jnp.minimum(k + 1, padded - 1))
        handed_over = following.actor.normalise(stored.obs[:, jnp.minimum(end, horizon)])
        worth = learner.value(following, handed_over)
        worth = jnp.clip(worth, achieved.min(), achieved.max())  # at first it is anything
        steps = jnp.where(filled, jnp.clip(stored.length, begin, end) - begin, 0)
        where_key, noise_key = jax.random.split(jax.random.fold_in(key, k))
        share = jnp.where(repeat > 0, BEST, 0.0) if learner.imitation else 0.0
        which, when = drawn(steps, share, shape, where_key)
        when = jnp.minimum(begin + when, horizon - 1)
        noise = jax.random.normal(noise_key, (*shape, learner.draws(stored.action.shape[-1])))
        moves = jnp.where(one.age >= tuning.warmup, 1.0, 0.0)

        def update(carry: tuple, draw: tuple[Array, Array, Array]) -> tuple[tuple, None]:
            (state, bonus), (e, t, noise) = carry, draw
            goes_on = t + 1 < stored.length[e]
            hands_over = goes_on & (t + 1 == end)
            ended = ~goes_on & stored.over[e]
            paid = jnp.where(hands_over, learner.gamma * worth[e], 0.0)
            obs, next_obs = map(state.actor.normalise, (stored.obs[e, t], stored.obs[e, t + 1]))
            transitions = Transitions(obs, stored.action[e, t], next_obs)
            bonus = tuning.bonus.fit(bonus, transitions)
            extra = tuning.bonus.pay(bonus, transitions, learner.gamma)
            batch = Batch(
                obs=obs,
                action=stored.action[e, t],
                reward=rewards[e, t] + paid + extra,
                next_obs=next_obs,
                done=(hands_over | ended).astype(float),
                achieved=achieved[e, t],
                repeat=jnp.where(e == 0, repeat, 0.0),
            )
            return (learner.update(state, batch, noise, moves), bonus), None

        learned, _ = jax.lax.scan(update, (state, bonus), (which, when, noise))
        some = steps.sum() > 0  # else no episode has got there yet
        keep = lambda a, b: jnp.where(some, a, b)  # noqa: E731
        new, bonus = jax.tree.map(keep, learned, (state, bonus))
        return jax.tree.map(lambda leaf, a: leaf.at[k].set(a), every, new), bonus

    return jax.lax.fori_loop(0, one.last + 1, update_stage, (one.stages, one.bonus))


def drawn(
    steps: Int[Array, " episodes"], share: ArrayLike, shape: tuple[int, ...], key: PRNGKeyArray
) -> tuple[Int[Array, "*shape"], Int[Array, "*shape"]]:
    """Of episodes with so many steps, steps drawn alike, but a `share` from the first episode, if it has any.

    Which episodes, and which of their steps.
    """
    where_key, first_key = jax.random.split(key)
    until = jnp.cumsum(steps)
    number = (jax.random.uniform(where_key, shape) * until[-1]).astype(int)
    which = jnp.minimum(jnp.searchsorted(until, number, side="right"), len(steps) - 1)
    when = jnp.maximum(number - until[which] + steps[which], 0)
    first = (jax.random.uniform(first_key, shape) < share) & (steps[0] > 0)
    when = jnp.where(first, number % jnp.maximum(steps[0], 1), when)
    return jnp.where(first, 0, which), when


def _pick(every: PyTree, k: Array) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[k], every)
