"""Calls functions by names that nobody answers to, and prints the errors."""

import sys

import jax
import jax.numpy as jnp

like = jax.ShapeDtypeStruct((3,), jnp.float32)
for target in sys.argv[1:]:
    # The names of today's interface, and of the one before.
    for version in (4, 2):
        call = jax.ffi.ffi_call(target, like, custom_call_api_version=version)
        try:
            jax.jit(call)(jnp.ones(3))
        except jax.errors.JaxRuntimeError as error:
            print(target, version, repr(str(error)))
        else:
            sys.exit(f"{target} was answered")
print("and goes on", float(jnp.ones(3).sum()))
