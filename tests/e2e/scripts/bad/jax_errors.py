"""Errors that a JAX user meets: a Python exception each, and the next program works."""

import jax
import jax.numpy as jnp
import numpy as np

x = jnp.arange(4.0)


def expect(kind, call):
    try:
        jax.block_until_ready(call())
    except kind as error:
        print(type(error).__name__, str(error).splitlines()[0][:120], flush=True)
    else:
        raise AssertionError(f"{kind} was not raised")
    assert float(x.sum()) == 6.0  # the session lives


unknown = jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((4,), jnp.float32))
expect(jax.errors.JaxRuntimeError, lambda: jax.jit(unknown)(x))


def broken(_):
    raise ValueError("the callback's own error")


shape = jax.ShapeDtypeStruct((4,), jnp.float32)
callback = jax.jit(lambda v: jax.pure_callback(broken, shape, v))
expect(jax.errors.JaxRuntimeError, lambda: callback(x))

compiled = jax.jit(lambda v: v * 2).lower(x).compile()
expect(TypeError, lambda: compiled(jnp.arange(5.0)))
expect(TypeError, lambda: compiled(jnp.arange(4)))

gone = x + 1
gone.delete()
expect(RuntimeError, lambda: gone * 2)
expect(RuntimeError, lambda: np.asarray(gone))
print("DONE")
