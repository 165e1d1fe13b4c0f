"""Asks the compiler to write files, through the environment and through compile options."""

import sys

import jax
import jax.numpy as jnp

directory = sys.argv[1]


@jax.jit
def by_environment(x):
    return jnp.sin(x) * 2


print(float(by_environment(jnp.arange(8.0)).sum()))
options = {"xla_dump_to": directory, "xla_dump_hlo_as_text": True}
try:
    compiled = jax.jit(lambda x: jnp.cos(x) * 3).lower(jnp.arange(8.0)).compile(options)
    print(float(compiled(jnp.arange(8.0)).sum()))
except jax.errors.JaxRuntimeError as error:
    print("refused:", error)
