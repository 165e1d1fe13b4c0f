"""An array of 1 GiB: there, through a program, and back."""

import jax
import numpy as np

from report import report

COUNT = 1 << 28  # float32

host = np.arange(COUNT, dtype=np.float32)
there = jax.device_put(host)
report("sum of squares", jax.jit(lambda a: (a[:: 1 << 10] ** 2).sum())(there))
step = jax.jit(lambda a: a * 0.5 + 1, donate_argnums=0)
there = step(step(there))
report("back", there)
expected = (host[:: 1 << 16] * np.float32(0.5) + 1) * np.float32(0.5) + 1
np.testing.assert_array_equal(np.asarray(there)[:: 1 << 16], expected)
