"""Uses JAX's persistent compilation cache in the directory given; says how often it hit."""

import sys
import warnings

import jax
import jax.numpy as jnp

from report import report

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
# A cache that cannot be read is a warning that JAX shows once; here it is to be seen.
warnings.simplefilter("always")

events = {"hits": 0, "misses": 0}


def count(event, **_):
    for name in events:
        if event == f"/jax/compilation_cache/cache_{name}":
            events[name] += 1


jax.monitoring.register_event_listener(count)


@jax.jit
def layers(x):
    for i in range(8):
        x = jnp.tanh(x @ x.T + i)
    return x


x = jax.random.normal(jax.random.key(0), (64, 64))
report("layers", layers(x))
report("grad", jax.jit(jax.grad(lambda x: layers(x).sum()))(x))
print(f"hits {events['hits']} misses {events['misses']}")
