"""`jax.export`: serialize, read back, call under jit and grad; shapes that are not known yet."""

import jax
import jax.numpy as jnp
from jax import export

from show import show, show_error


def round_trip(exported, vjp_order=0):
    return export.deserialize(exported.serialize(vjp_order=vjp_order))


@jax.jit
def model(weights, x):
    return {"out": jnp.tanh(x @ weights["w"] + weights["b"]), "norm": jnp.linalg.norm(x)}


weights = {"w": jnp.arange(6.0).reshape(2, 3) / 6, "b": jnp.ones(3)}
x = jnp.arange(8.0).reshape(4, 2) / 8
exported = export.export(model)(weights, x)
print("platforms", exported.platforms, "devices", exported.nr_devices)
print("in", [str(aval) for aval in exported.in_avals])
print("out", [str(aval) for aval in exported.out_avals])
loaded = round_trip(exported, vjp_order=1)
show("call", loaded.call(weights, x))
show("under_jit", jax.jit(lambda x: loaded.call(weights, x * 2)["out"].sum())(x))
show("grad", jax.grad(lambda w: loaded.call(w, x)["out"].sum())(weights))

specs = export.symbolic_args_specs((jnp.zeros((4, 2)),), ("b, 2",))
symbolic = round_trip(export.export(jax.jit(lambda x: (x * 2).sum(0) + x.shape[0]))(*specs))
for rows in (1, 4, 7):
    show(f"symbolic_{rows}", symbolic.call(jnp.ones((rows, 2))))

several = export.export(jax.jit(jnp.sin), platforms=("cpu", "cuda", "tpu"))(x)
show("several_platforms", round_trip(several).call(x))
cholesky = export.export(jax.jit(lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(4))))(x)
show("lapack", round_trip(cholesky).call(x))
keys = export.export(jax.jit(lambda k: jax.random.normal(k, (3,))))(jax.random.key(0))
show("keys", round_trip(keys).call(jax.random.key(7)))

show_error("wrong_shape", loaded.call, weights, jnp.ones((4, 3)))
only_tpu = export.export(jax.jit(jnp.sin), platforms=("tpu",))(x)
show_error("wrong_platform", only_tpu.call, x)
show_error("symbolic_mismatch", symbolic.call, jnp.ones((4, 3)))
