"""Checks of values: checkify in all its kinds, debug_nans, debug_infs."""

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from show import show, show_error

ALL = checkify.all_checks


def described(name, checked, *args):
    error, value = checked(*args)
    text = error.get()
    # Where in this file it happened comes after the message.
    print(name, (text or "no error").splitlines()[0], flush=True)
    show(f"{name}_value", value)


def guarded(x):
    checkify.check(jnp.all(x > 0), "x must be positive, got {x}", x=x)
    return jnp.log(x)


checked = jax.jit(checkify.checkify(guarded))
described("check_passes", checked, jnp.array([1.0, 2.0]))
described("check_fails", checked, jnp.array([1.0, -2.0]))
described("check_vmap", jax.vmap(checkify.checkify(guarded)), jnp.array([1.0, 2.0]))

index = jax.jit(checkify.checkify(lambda x, i: x[i], errors=ALL))
described("index_inside", index, jnp.arange(4.0), 3)
described("index_outside", index, jnp.arange(4.0), 9)
described("division", jax.jit(checkify.checkify(lambda x: 1 / x, errors=ALL)), jnp.float32(0))
described("nan", jax.jit(checkify.checkify(jnp.sin, errors=ALL)), jnp.float32(jnp.inf))


def loop(limit):
    def body(x, _):
        checkify.check(x < limit, "too large: {x}", x=x)
        return x + 1, x

    return jax.lax.scan(body, 0, None, length=5)[0]


in_scan = jax.jit(checkify.checkify(loop))
described("scan_passes", in_scan, 9)
described("scan_fails", in_scan, 3)
in_cond = checkify.checkify(lambda x: jax.lax.cond(x > 0, guarded, lambda x: x, x))
described("cond_passes", jax.jit(in_cond), jnp.float32(-1))
described("grad", checkify.checkify(jax.grad(lambda x: guarded(x).sum())), jnp.array([2.0]))
show_error("throw", lambda: checkify.check_error(checked(jnp.array([-1.0]))[0]))

with jax.debug_nans(True):
    show("nans_fine", jax.jit(jnp.log)(jnp.float32(2)))
    show_error("nans_jit", jax.jit(jnp.log), jnp.float32(-1))
    show_error("nans_eager", jnp.log, jnp.float32(-1))
    show_error("nans_grad", jax.jit(jax.grad(jnp.sqrt)), jnp.float32(-1))
with jax.debug_infs(True):
    show_error("infs_jit", jax.jit(lambda x: 1 / x), jnp.float32(0))
