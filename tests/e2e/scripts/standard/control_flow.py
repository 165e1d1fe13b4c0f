"""`jax.lax` control flow: scan, loops, cond, switch, maps, and their derivatives."""

import jax
import jax.numpy as jnp
from jax import lax

from show import show, show_error


@jax.jit
def cumulative(xs):
    return lax.scan(lambda c, x: (c * 0.5 + x, jnp.sin(c)), jnp.float32(1), xs)


xs = jnp.linspace(0.0, 1.0, 7)
show("scan", cumulative(xs))
show("scan_reverse", lax.scan(lambda c, x: (c + x, c), 0.0, xs, reverse=True))
show("scan_unroll", lax.scan(lambda c, x: (c + x, c * x), 0.0, xs, unroll=3))
show("scan_nothing", lax.scan(lambda c, _: (c + 1, c), 0, None, length=5))
show("scan_empty", lax.scan(lambda c, x: (c + x, c), 0.0, jnp.zeros(0)))
show("scan_tree", lax.scan(lambda c, x: ({"a": c["a"] + x[0]}, x[1]), {"a": 0.0}, (xs, xs * 2)))
show("scan_grad", jax.grad(lambda x: cumulative(x)[0].sum() + cumulative(x)[1].sum())(xs))
show("scan_vmap", jax.vmap(cumulative)(jnp.stack([xs, xs + 1])))
body = jax.checkpoint(lambda c, x: (jnp.tanh(c + x), c))
show("scan_remat", jax.grad(lambda x: lax.scan(body, 0.0, x)[0])(xs))

collatz = jax.jit(
    lambda n: lax.while_loop(
        lambda s: s[0] != 1,
        lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
        (n, 0),
    )
)
show("while", collatz(27))
show("while_vmap", jax.vmap(collatz)(jnp.array([1, 7, 27, 97])))
show("fori", lax.fori_loop(0, 10, lambda i, s: s + i * i, 0))
show("fori_dynamic", jax.jit(lambda n: lax.fori_loop(0, n, lambda i, s: s * 1.5, 1.0))(6))
show("fori_grad", jax.grad(lambda x: lax.fori_loop(0, 4, lambda i, s: s * x, 1.0))(1.5))
show(
    "while_jvp",
    jax.jvp(lambda x: lax.while_loop(lambda s: s < 9, lambda s: s * x, x), (2.0,), (1.0,)),
)


@jax.jit
def choose(p, x):
    return lax.cond(p, lambda x: x * 2, lambda x: x - 1, x)


show("cond", [choose(True, 3.0), choose(False, 3.0)])
show("cond_vmap", jax.vmap(choose)(jnp.array([True, False]), jnp.array([1.0, 2.0])))
show("cond_grad", [jax.grad(choose, argnums=1)(p, 3.0) for p in (True, False)])
branches = [jnp.sin, jnp.cos, jnp.tanh]
show("switch", [jax.jit(lambda i: lax.switch(i, branches, 0.5))(i) for i in (-1, 0, 1, 2, 9)])
show("switch_vmap", jax.vmap(lambda i: lax.switch(i, branches, 0.5))(jnp.arange(3)))
show("map", lax.map(lambda x: x**2, xs))
show("map_batched", lax.map(lambda x: x**2, xs, batch_size=3))
show("associative_scan", lax.associative_scan(jnp.multiply, xs + 1))
show("cumulative", [lax.cumsum(xs), lax.cumprod(xs + 1), lax.cummax(-xs), lax.cumlogsumexp(xs)])
show("nested", lax.scan(lambda c, x: (lax.fori_loop(0, 3, lambda i, s: s + x, c), c), 0.0, xs))
root = lax.custom_root(
    lambda x: x**3 - 2,
    1.0,
    lambda f, x: lax.fori_loop(0, 20, lambda i, x: x - f(x) / jax.grad(f)(x), x),
    lambda g, y: y / g(1.0),
)
show("custom_root", root)
solve = lambda b: lax.custom_linear_solve(  # noqa: E731
    lambda x: 3 * x, b, lambda f, b: b / 3, symmetric=True
)
show("custom_linear_solve", [solve(xs), jax.grad(lambda b: solve(b).sum())(xs)])

show_error("scan_type", lambda: lax.scan(lambda c, x: (jnp.int32(c), x), 0.5, xs))
show_error("cond_type", lambda: lax.cond(True, lambda: 1.0, lambda: 1))
show_error(
    "while_grad", jax.grad(lambda x: lax.while_loop(lambda s: s < 9, lambda s: s * x, x)), 2.0
)
