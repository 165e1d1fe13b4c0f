"""Flax linen: dropout, batch statistics, an LSTM, a training state with donation."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state

from report import report


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        # The default needs LAPACK, which the plugin that this is compared with has not.
        init = nn.initializers.lecun_normal()
        x = nn.RNN(nn.LSTMCell(24, recurrent_kernel_init=init))(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.Dropout(0.3, deterministic=not train)(x)
        return nn.Dense(3)(x.mean(axis=1))


class State(train_state.TrainState):
    batch_stats: dict


@partial(jax.jit, donate_argnums=0)
def step(state, key, x, y):
    def loss(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        logits, updates = state.apply_fn(
            variables, x, True, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        value = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return value, updates["batch_stats"]

    (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=stats), value


x = jax.random.normal(jax.random.key(0), (32, 20, 8))
y = (x.sum((1, 2)) > 0).astype(jnp.int32)
net = Net()
variables = net.init(jax.random.key(1), x, False)
state = State.create(
    apply_fn=net.apply,
    params=variables["params"],
    batch_stats=variables["batch_stats"],
    tx=optax.adamw(1e-2),
)
key = jax.random.key(2)
for _ in range(25):
    key, sub = jax.random.split(key)
    state, value = step(state, sub, x, y)
report("loss", value)
report("params", state.params)
report("batch statistics", state.batch_stats)
assert float(value) < 0.7
