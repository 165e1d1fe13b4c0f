"""Equinox: filtered transformations over a module that is a pytree."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from report import report

model = eqx.nn.MLP(8, 1, 64, 3, key=jax.random.key(0))
optimizer = optax.adam(3e-3)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit(donate="all-except-first")
def step(xy, model, state):
    x, y = xy

    @eqx.filter_value_and_grad
    def loss(model):
        return ((jax.vmap(model)(x) - y) ** 2).mean()

    value, grads = loss(model)
    updates, state = optimizer.update(grads, state)
    return eqx.apply_updates(model, updates), state, value


x = jax.random.normal(jax.random.key(1), (256, 8))
y = jnp.sin(x.sum(axis=1, keepdims=True))
for _ in range(40):
    model, state, value = step((x, y), model, state)
report("loss", value)
report("model", eqx.filter(model, eqx.is_array))
assert float(value) < 0.6
