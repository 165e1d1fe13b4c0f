"""Loops inside one program: scan with gradients, while with a data-dependent end, cond, map."""

import jax
import jax.numpy as jnp
from jax import lax

from report import report


def cell(params, h, x):
    h = jnp.tanh(x @ params["in"] + h @ params["rec"] + params["bias"])
    return h, h.mean()


def loss(params, xs):
    h, means = lax.scan(lambda h, x: cell(params, h, x), jnp.zeros((8, 32)), xs)
    return (h**2).sum() + means.sum()


keys = jax.random.split(jax.random.key(1), 3)
params = {
    "in": jax.random.normal(keys[0], (16, 32)) * 0.1,
    "rec": jax.random.normal(keys[1], (32, 32)) * 0.1,
    "bias": jnp.zeros(32),
}
xs = jax.random.normal(keys[2], (200, 8, 16))
value, grads = jax.jit(jax.value_and_grad(loss))(params, xs)
report("value", value)
report("grads", grads)


@jax.jit
def collatz(n):
    def odd_or_even(state):
        n, count = state
        return lax.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), count + 1

    return lax.while_loop(lambda s: s[0] != 1, odd_or_even, (n, 0))[1]


report("collatz", jax.vmap(collatz)(jnp.arange(1, 60)))
report("map", lax.map(lambda x: jnp.sin(x).sum(), xs[:10]))
report("fori", lax.fori_loop(0, 1000, lambda i, x: x * 0.999 + i, jnp.float32(0)))
report("associative", lax.associative_scan(jnp.multiply, 1 + 0.01 * xs[:, 0, 0]))
