"""Programs compiled ahead: inspected, serialized, loaded again, exported."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import serialize_executable

from report import report


def f(x, y):
    return {"product": x @ y, "sum": (x + 1).sum()}


x = jnp.arange(12.0).reshape(3, 4)
y = jnp.ones((4, 5))
compiled = jax.jit(f).lower(x, y).compile()
report("compiled", compiled(x, y))

assert "fusion" in compiled.as_text() or "dot" in compiled.as_text()
cost = compiled.cost_analysis()
print("flops", cost["flops"])
memory = compiled.memory_analysis()
print("argument bytes", memory.argument_size_in_bytes)
print("output bytes", memory.output_size_in_bytes)

payload = pickle.dumps(serialize_executable.serialize(compiled))
loaded = serialize_executable.deserialize_and_load(*pickle.loads(payload))
report("loaded", loaded(x, y))
np.testing.assert_array_equal(loaded(x, y)["product"], compiled(x, y)["product"])

exported = export.deserialize(export.export(jax.jit(f))(x, y).serialize())
report("exported", exported.call(x, y))
