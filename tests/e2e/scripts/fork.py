"""A child by fork: it cannot use the device and is told so, may drop its arrays, and its parent
goes on undisturbed.

The child ends as those of `multiprocessing` do, without Python's clean-up: in that, JAX itself
crashes or hangs after a fork, whatever the device (jaxlib waits for threads the child lacks).
"""

import gc
import os
import signal
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from report import raises, report

double = jax.jit(lambda a: a * 2)
x = jnp.arange(1000.0)
y = double(x).block_until_ready()
# JAX warns that forking is dangerous, which is what is tested here.
warnings.simplefilter("ignore")

child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that hangs is a failure, too
    try:
        raises((RuntimeError, ValueError), "fork", lambda: np.asarray(double(x)))
        raises((RuntimeError, ValueError), "fork", lambda: np.asarray(y))
        del x, y
        gc.collect()
    except BaseException as error:
        print(f"in the child: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
report("parent", y + jnp.sin(x))
report("again", double(x))
