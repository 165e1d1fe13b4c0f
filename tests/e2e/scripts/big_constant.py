"""A program that carries 48 MiB of constants in its own text, and one with 600 arguments."""

import jax
import jax.numpy as jnp
import numpy as np

from report import report

constant = np.random.default_rng(0).normal(size=(12, 1 << 20)).astype(np.float32)
program = jax.jit(lambda x: (constant * x).sum(axis=1))
text = program.lower(jnp.float32(2)).compiler_ir().operation.get_asm(enable_debug_info=False)
assert len(text) > constant.nbytes, len(text)
report("constant", program(jnp.float32(2)))

arguments = [np.full((3,), i, np.float32) for i in range(600)]
report("arguments", jax.jit(lambda a: [x + i for i, x in enumerate(a)])(arguments))
