"""Multiplies matrices, then makes one array of the given size and adds it up."""

import argparse

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--mib", type=int, required=True)
mib = parser.parse_args().mib


@jax.jit
def product(a, b):
    return jnp.tanh(a @ b).sum()


@jax.jit
def large():
    return jnp.ones((mib, 1 << 18), jnp.float32)


print(float(product(jnp.ones((64, 32)), jnp.ones((32, 16)))))
array = large().block_until_ready()
print(array.nbytes >> 20, float(array[:, 0].sum()))
