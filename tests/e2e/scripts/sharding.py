"""Meshes, shardings and collectives on the one device that a job sees."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from report import report

mesh = Mesh(jax.devices()[:1], ("data",))
sharded = NamedSharding(mesh, PartitionSpec("data"))
x = jax.device_put(jnp.arange(32.0).reshape(8, 4), sharded)
report("jit", jax.jit(lambda a: a @ a.T, out_shardings=sharded)(x))

sum_over = partial(
    jax.shard_map, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec()
)
report("shard_map", jax.jit(sum_over(lambda a: jax.lax.psum(a.sum(0), "data")))(x))
report("pmap", jax.pmap(lambda a: a / jax.lax.psum(a, "i"), axis_name="i")(x[None]))
made = jax.make_array_from_callback((8, 4), sharded, lambda index: jnp.ones((8, 4))[index])
report("made", made + 1)
