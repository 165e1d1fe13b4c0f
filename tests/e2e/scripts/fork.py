"""A child by fork: it may end normally, it may not use the device, and its parent goes on."""

import os
import warnings

import jax.numpy as jnp
from report import report

x = jnp.arange(1000.0)
y = (x * 2).block_until_ready()
# JAX warns that forking is dangerous, which is what is tested here.
warnings.simplefilter("ignore")

child = os.fork()
if child == 0:
    # Ends like any Python: every array and program is destroyed on the way out.
    raise SystemExit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
report("parent", y + jnp.sin(x))
