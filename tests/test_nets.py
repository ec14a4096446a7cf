"""What the networks and their optimiser promise."""

import jax.numpy as jnp
import numpy as np
import optax

from upside.nets import adam, adam_state


def test_adam_makes_the_steps_that_optax_makes():
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), "b": jnp.float32(0.5)}
    reference, lr = optax.adam(1e-2), 1e-2
    ours, theirs = params, params
    opt, state = adam_state(params), reference.init(params)
    for _ in range(20):
        draw = rng.normal(size=(3, 2)) * 10.0 ** rng.integers(-6, 2)
        grads = {"w": jnp.asarray(draw, jnp.float32), "b": jnp.float32(rng.normal())}
        ours, opt = adam(ours, grads, opt, lr)
        updates, state = reference.update(grads, state, theirs)
        theirs = optax.apply_updates(theirs, updates)
    for name in params:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6)
    assert opt.count == 20
