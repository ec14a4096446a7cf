"""What TD3 promises: losses worked by hand, then probe environments whose values are known."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from upside.learners import td3
from upside.learners.td3 import TD3, Batch
from upside.nets import polyak

TINY = TD3(
    hidden=1,
    gamma=0.9,
    tau=0.25,
    lr_pol=0.01,
    target_noise=0.2,
    noise_clip=0.5,
    policy_delay=2,
    self_imitation=False,
)
LIFT = 100.0  # keeps both hidden layers on the linear side of their ReLU

critic_loss = jax.jit(td3.critic_loss, static_argnums=4)
actor_loss = jax.jit(td3.actor_loss, static_argnums=3)
update = jax.jit(TD3.update, static_argnums=0)
update_critic = jax.jit(td3.update_critic, static_argnums=0)
update_actor = jax.jit(td3.update_actor, static_argnums=0)


def linear(mlp, *functions):
    """`mlp` with hidden width 1 as x ↦ w·x + b for each (w, b) of `functions`, one network each.

    Hidden units are w·x + LIFT > 0, so every ReLU is the identity; the read-out takes LIFT off.
    """
    first = np.array([w for w, _ in functions], np.float32)[:, :, None]
    n = len(functions)
    weights = (first, np.ones((n, 1, 1)), np.ones((n, 1, 1)))
    biases = (np.full((n, 1), LIFT), np.zeros((n, 1)), np.array([[b - LIFT] for _, b in functions]))
    shape = lambda new, old: jnp.asarray(new.reshape(old.shape), jnp.float32)  # noqa: E731
    where = lambda m: (*m.weights, *m.biases)  # noqa: E731
    new = [shape(n, o) for n, o in zip((*weights, *biases), where(mlp), strict=True)]
    return eqx.tree_at(where, mlp, tuple(new))


@pytest.fixture
def state():
    """One-dimensional observation and action:

    Q1 = s + a        Q2 = 2 - a       π  = tanh(0)
    Q1' = 2 s + a     Q2' = s + 3 a    π' = tanh(0)
    """
    one = np.ones(1, np.float32)
    state = TINY.init(0 * one, one, 1, np.random.default_rng(0))
    still = linear(state.actor.mlp, ([0.0], 0.0))
    return dataclasses.replace(
        state,
        actor=eqx.tree_at(lambda a: a.mlp, state.actor, still),
        actor_target=eqx.tree_at(lambda a: a.mlp, state.actor_target, still),
        critic=eqx.tree_at(
            lambda c: c.pair,
            state.critic,
            linear(state.critic.pair, ([1.0, 1.0], 0.0), ([0.0, -1.0], 2.0)),
        ),
        critic_target=eqx.tree_at(
            lambda c: c.pair,
            state.critic_target,
            linear(state.critic_target.pair, ([2.0, 1.0], 0.0), ([1.0, 3.0], 0.0)),
        ),
    )


def batch(obs, action, reward, next_obs, done, achieved=0.0):
    """Transitions of one-dimensional observations and actions; numbers are repeated to fill two."""
    values = np.broadcast_arrays(obs, action, reward, next_obs, done, achieved, np.zeros(2))[:-1]
    o, a, r, n, d, g = (np.asarray(v, np.float32) for v in values)
    return jax.tree.map(
        jnp.asarray, Batch(o[:, None], a[:, None], r, n[:, None], d, g, np.maximum(g, 0))
    )


def column(*values):
    """Two rows, as in `batch`."""
    return jnp.asarray(np.resize(np.float32(values), (2, 1)))


def twice(first, second=None):
    """The batches of one `update` with a policy delay of 2."""
    return jax.tree.map(lambda *b: jnp.asarray(np.stack(b)), first, second or first)


def weights(*modules):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(modules)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(weights(a), weights(b), strict=True))


# ---------------------------------------------------------------- losses by hand


def test_the_critics_loss_by_hand(state):
    # s = 0.5, a = 0.2, r = 1, s' = 1, ε = 0.3
    #   a' = tanh(0) + 0.3 = 0.3;  Q1' = 2 + 0.3 = 2.3,  Q2' = 1 + 0.9 = 1.9,  the smaller is 1.9
    #   y  = 1 + 0.9 · 1.9 = 2.71
    #   Q1 = 0.7,  Q2 = 1.8;  errors -2.01 and -0.91;  4.0401 + 0.8281 = 4.8682
    first = batch(0.5, 0.2, 1.0, 1.0, 0.0)
    assert critic_loss(state.critic, state, first, column(0.3), TINY) == pytest.approx(4.8682, 1e-4)
    # s = 1, a = -0.5, r = 0.5, s' = 2, ε = -0.2
    #   Q1' = 4 - 0.2 = 3.8,  Q2' = 2 - 0.6 = 1.4;  y = 0.5 + 0.9 · 1.4 = 1.76
    #   Q1 = 0.5,  Q2 = 2.5;  errors -1.26 and 0.74;  1.5876 + 0.5476 = 2.1352
    # both together: the mean over transitions of the sum over critics, (4.8682 + 2.1352) / 2
    both = batch([0.5, 1.0], [0.2, -0.5], [1.0, 0.5], [1.0, 2.0], 0.0)
    assert critic_loss(state.critic, state, both, column(0.3, -0.2), TINY) == pytest.approx(
        3.5017, 1e-4
    )


def test_the_target_policys_action_stays_in_the_box(state):
    # π'(s') = tanh(0) = 0 and ε = 0.2 · 10, clipped to 0.5; an actor at 0.8 ends at 1, not 1.3
    one, noise = batch(0.5, 0.2, 1.0, 1.0, 0.0), column(10.0)
    assert td3.targets(TINY, state, one, noise) == pytest.approx(0.5)
    bold = linear(state.actor.mlp, ([0.0], np.arctanh(0.8)))
    state = eqx.tree_at(lambda s: s.actor_target.mlp, state, bold)
    assert td3.targets(TINY, state, one, noise) == pytest.approx(1.0)


def test_done_stops_bootstrapping(state):
    # y = r = 1 wherever it led: Q1 = 0.7,  Q2 = 1.8;  0.09 + 0.64
    for next_obs in (1.0, -7.0):
        end = batch(0.5, 0.2, 1.0, next_obs, 1.0)
        assert critic_loss(state.critic, state, end, column(0.3), TINY) == pytest.approx(0.73, 1e-4)


def test_self_imitation_bounds_the_target_from_below(state):
    config = dataclasses.replace(TINY, self_imitation=True)

    def loss(achieved, config=config):
        one = batch(0.5, 0.2, 1.0, 1.0, 0.0, achieved)
        return float(critic_loss(state.critic, state, one, column(0.3), config))

    # y = max(2.71, 3) = 3: errors -2.3 and -1.2;  5.29 + 1.44
    assert loss(3.0) == pytest.approx(6.73, 1e-4)
    # an episode that did worse than what is hoped for says nothing: y = 2.71
    assert loss(2.0) == pytest.approx(4.8682, 1e-4)
    assert loss(3.0, TINY) == pytest.approx(4.8682, 1e-4), "the paper's TD3 does not look at it"


def test_actions_near_their_bound_are_executed_there(state):
    actor = eqx.tree_at(lambda a: a.mlp, state.actor, linear(state.actor.mlp, ([1.0], 0.0)))
    obs = jnp.array([[-3.0], [-1.0], [0.5], [1.5]])
    plain = np.tanh([-3.0, -1.0, 0.5, 1.5])
    np.testing.assert_allclose(actor(obs)[:, 0], plain, rtol=1e-4)
    snapping = dataclasses.replace(actor, snap=0.9)
    np.testing.assert_allclose(snapping(obs)[:, 0], [-1, plain[1], plain[2], 1], rtol=1e-4)
    np.testing.assert_allclose(
        snapping.squash(obs), actor.squash(obs)
    )  # what is learned has a slope


def test_the_actors_loss_by_hand_and_its_sign(state):
    # Q1(s, π(s)) = s + tanh(0): mean of 0.5 and 1 is 0.75; Q2, which falls with a, has no say
    two = batch([0.5, 1.0], 0.2, 0.0, 0.0, 0.0)
    assert actor_loss(state.actor.mlp, state, two, 0.0) == pytest.approx(-0.75, 1e-4)
    # the first episode achieved 1.5 with an action 0.2 away: 5 · 1.5 · 0.04; the second nothing
    seen = batch([0.5, 1.0], 0.2, 0.0, 0.0, 0.0, [1.5, 0.0])
    assert actor_loss(state.actor.mlp, state, seen, 5.0) == pytest.approx((0.3 - 1.5) / 2, 1e-4)
    # Q1 grows with a, so the action must grow from 0
    after = update_actor(TINY, state, two, 1.0)
    assert (after.actor(two.obs) > 1e-3).all()
    assert (state.actor(two.obs) == 0.0).all()


# ---------------------------------------------------------------- one update


def test_polyak_by_numbers():
    target, online = {"w": jnp.array([1.0, -2.0])}, {"w": jnp.array([3.0, 2.0])}
    np.testing.assert_allclose(polyak(target, online, 0.25)["w"], [1.5, -1.0])
    np.testing.assert_allclose(polyak(target, online, 0.0)["w"], [1.0, -2.0])
    np.testing.assert_allclose(polyak(target, online, 1.0)["w"], [3.0, 2.0])


def test_targets_follow_the_new_networks_by_tau(state):
    one = batch(0.5, 0.2, 1.0, 1.0, 0.0)
    after = update_critic(TINY, state, one, column(0.3))
    assert not same(after.critic, state.critic)
    for old, new, target in zip(
        weights(state.critic_target),
        weights(after.critic),
        weights(after.critic_target),
        strict=True,
    ):
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-6)
    after = update_actor(TINY, state, one, 1.0)
    for old, new, target in zip(
        weights(state.actor_target.mlp),
        weights(after.actor.mlp),
        weights(after.actor_target.mlp),
        strict=True,
    ):
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-6)


def test_warm_up_holds_the_actor_while_the_critics_move(state):
    two, noise = twice(batch(0.5, 0.2, 1.0, 1.0, 0.0)), np.zeros((2, 2, 1), np.float32)
    held, moved = update(TINY, state, two, noise, 0.0), update(TINY, state, two, noise, 1.0)
    assert same((held.actor, held.actor_target), (state.actor, state.actor_target))
    assert not same(held.critic, state.critic)
    assert not same(held.critic_target, state.critic_target)
    assert same(held.critic, moved.critic)
    assert not same(moved.actor.mlp, state.actor.mlp)
    assert not same(moved.actor_target.mlp, state.actor_target.mlp)


def test_the_skills_outlook_is_not_trained(state):
    center, scale = np.float32([3.0]), np.float32([2.0])
    fresh = TINY.init(center, scale, 1, np.random.default_rng(0))
    state = dataclasses.replace(fresh, critic=state.critic)
    two = twice(batch(0.5, 0.2, 1.0, 1.0, 0.0))
    after = update(TINY, state, two, np.zeros((2, 2, 1), np.float32), 1.0)
    for actor in (after.actor, after.actor_target):
        assert (actor.center, actor.scale) == (center, scale)
    # the learner's observations are (obs - center) / scale; the actor itself takes them raw
    actor = eqx.tree_at(lambda a: a.mlp, after.actor, linear(after.actor.mlp, ([0.5], 0.25)))
    np.testing.assert_allclose(actor(column(5.0)), np.tanh(0.75), rtol=1e-4)
    np.testing.assert_allclose(actor.squash(column(1.0)), np.tanh(0.75), rtol=1e-4)


def test_policy_delay_is_so_many_critic_updates_then_one_of_the_actor_on_the_last_batch(state):
    first, last = batch(0.1, 0.2, 1.0, 1.0, 0.0), batch([0.5, -4.0], -0.3, 0.0, 2.0, 1.0)
    noise = np.float32([[[0.5]] * 2, [[-1.0]] * 2])
    after = update(TINY, state, twice(first, last), noise, 1.0)
    assert after.critic_opt.count == 2
    assert after.actor_opt.count == 1
    state = update_critic(TINY, state, first, np.float32(0.2) * noise[0])
    state = update_critic(TINY, state, last, np.float32(0.2) * noise[1])
    state = update_actor(TINY, state, last, 1.0)
    for a, b in zip(weights(after), weights(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_smoothing_noise_is_scaled_then_clipped(state):
    """TD3's own numbers: 0.2 times a standard normal draw, within ±0.5."""
    one = batch(0.5, 0.2, 1.0, 1.0, 0.0)
    for draw, expected in ((1.0, 0.2), (10.0, 0.5), (-10.0, -0.5)):
        after = update(TINY, state, twice(one), np.full((2, 2, 1), draw, np.float32), 0.0)
        by_hand = update_critic(TINY, state, one, column(expected))
        by_hand = update_critic(TINY, by_hand, one, column(expected))
        for a, b in zip(weights(after.critic), weights(by_hand.critic), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


# ---------------------------------------------------------------- probe environments

PROBE = dataclasses.replace(TINY, hidden=16, gamma=0.5, tau=0.1, lr_pol=5e-3, batch_pol=32)
STORED, UPDATES = 256, 300


@jax.jit
def learn(state, stored, index, noise):
    """One update for each row of `index`, on the `stored` transitions it names."""

    def one(state, draw):
        batches = jax.tree.map(lambda leaf: leaf[draw[0]], stored)
        return PROBE.update(state, batches, draw[1]), None

    return jax.lax.scan(one, state, (index, noise))[0]


def solve(obs, reward, next_obs, done):
    """Train on transitions with uniformly random actions; `reward` may look at them."""
    rng = np.random.default_rng(1)
    action = rng.uniform(-1, 1, STORED)
    obs, next_obs, done = (np.resize(np.asarray(x, float), STORED) for x in (obs, next_obs, done))
    no = 0 * done
    values = (obs[:, None], action[:, None], reward(obs, action), next_obs[:, None], done, no, no)
    stored = Batch(*(np.asarray(v, np.float32) for v in values))
    one = np.ones(1, np.float32)
    start = PROBE.init(0 * one, one, 1, rng)
    shape = (UPDATES, PROBE.policy_delay, PROBE.batch_pol)
    noise = rng.normal(size=(*shape, 1)).astype(np.float32)
    return learn(start, stored, rng.integers(STORED, size=shape), noise)


def values(state, *obs):
    """Both critics at `obs` for a few actions: [critics, obs, actions]."""
    grid = np.meshgrid(np.float32(obs), np.linspace(-0.9, 0.9, 5, dtype=np.float32), indexing="ij")
    return np.asarray(state.critic(*(jnp.asarray(g)[..., None] for g in grid)))


def test_probe_one_step_one_reward():
    learned = solve([0.0], lambda obs, action: 1.0 + 0 * obs, [0.0], [1.0])
    np.testing.assert_allclose(values(learned, 0.0), 1.0, atol=0.05)


def test_probe_value_depends_on_the_observation():
    learned = solve([-1.0, 1.0], lambda obs, action: obs, [0.0], [1.0])
    q = values(learned, -1.0, 1.0)
    np.testing.assert_allclose(q[:, 0], -1.0, atol=0.1)
    np.testing.assert_allclose(q[:, 1], 1.0, atol=0.1)


def test_probe_discount_over_two_steps():
    """0 → 1 → end, paid 1 for the second step: V(1) = 1 and V(0) = γ."""
    learned = solve([0.0, 1.0], lambda obs, action: obs, [1.0, 0.0], [0.0, 1.0])
    q = values(learned, 0.0, 1.0)
    np.testing.assert_allclose(q[:, 0], PROBE.gamma, atol=0.1)
    np.testing.assert_allclose(q[:, 1], 1.0, atol=0.1)


def test_probe_the_actor_finds_the_action_that_pays():
    """The best action is half the observation."""
    learned = solve([-1.0, 1.0], lambda obs, action: -((action - obs / 2) ** 2), [0.0], [1.0])
    actions = np.asarray(learned.actor(column(-1.0, 1.0)))[:, 0]
    np.testing.assert_allclose(actions, [-0.5, 0.5], atol=0.15)
