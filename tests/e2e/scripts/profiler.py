"""`jax.profiler` writes a trace, and what it traced is right."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

from report import report

directory = tempfile.mkdtemp()
with jax.profiler.trace(directory):
    x = jnp.arange(10_000.0)
    for i in range(5):
        with jax.profiler.StepTraceAnnotation("step", step_num=i):
            x = jnp.sin(x) + i
    x.block_until_ready()
report("result", x)
written = [path for path in Path(directory).rglob("*.xplane.pb") if path.stat().st_size > 0]
print("traces", len(written))
assert written
