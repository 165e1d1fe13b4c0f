"""An equinox model that checks its input while it runs: passing and raising."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax


class Classifier(eqx.Module):
    layers: list
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        a, b = jr.split(key)
        self.layers = [eqx.nn.Linear(4, 16, key=a), eqx.nn.Linear(16, 3, key=b)]
        self.norm = eqx.nn.LayerNorm(16)

    def __call__(self, x):
        x = eqx.error_if(x, jnp.any(~jnp.isfinite(x)), "the input must be finite")
        x = self.norm(jax.nn.gelu(self.layers[0](x)))
        x = eqx.error_if(x, jnp.max(jnp.abs(x)) > 100, "the activation exploded")
        return self.layers[1](x)


x = jr.normal(jr.key(0), (64, 4))
y = jnp.argmax(x[:, :3], -1)
model = Classifier(jr.key(1))
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit
def step(model, state, x, y):
    @eqx.filter_value_and_grad
    def loss(model):
        values = jax.vmap(model)(x)
        return optax.softmax_cross_entropy_with_integer_labels(values, y).mean()

    value, grads = loss(model)
    updates, state = optimizer.update(grads, state)
    return eqx.apply_updates(model, updates), state, value


for index in range(30):
    model, state, value = step(model, state, x, y)
    if index % 10 == 0:
        print(f"step {index} loss {value:.2f}", flush=True)


def message(call, *args):
    """All of what a user reads: the traceback inside of the program, the message, the hints."""
    try:
        jax.block_until_ready(call(*args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


predict = eqx.filter_jit(lambda model, x: jax.vmap(model)(x))
print(message(predict, model, x))
print(message(predict, model, x.at[3, 1].set(jnp.nan)))
print(message(step, model, state, x.at[0, 0].set(jnp.inf), y))
print(message(predict, model, x))

branched = eqx.filter_jit(
    lambda x, i: eqx.branched_error_if(x, x < 0, i, ["the first kind", "the second kind"])
)
print(message(branched, jnp.float32(1), jnp.int32(1)))
print(message(branched, jnp.float32(-1), jnp.int32(1)))


@eqx.filter_jit
def countdown(n):
    def body(n):
        return eqx.error_if(n - 1, n < 0, "below zero")

    return jax.lax.while_loop(lambda n: n != 0, body, n)


print(message(countdown, 3), message(countdown, -3))
# Outside of equinox' own jit the message stands in the middle of JAX's.
plain = jax.jit(jax.grad(lambda x: eqx.error_if(x, x > 2, "too large") ** 2))
text = message(plain, 3.0)
print(message(plain, 1.0), text.split(":")[0], "_EquinoxRuntimeError: too large" in text)
