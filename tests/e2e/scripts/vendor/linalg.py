"""Linear algebra on a GPU: by custom calls to the vendor's handlers, or in plain operations."""

import re

import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(7)
a = rng.standard_normal((6, 6)).astype(np.float32)
spd = a @ a.T + 6 * np.eye(6, dtype=np.float32)
b = rng.standard_normal((6, 2)).astype(np.float32)

print("platform", jax.devices()[0].platform)
print("linalg", jax.devices()[0].salus_linalg)
lowered = jax.jit(jnp.linalg.cholesky).lower(spd).as_text()
print("calls", *re.findall(r"custom_call @(\w+)", lowered))


def close(name, found, expected):
    print(name, bool(np.allclose(np.asarray(found), expected, rtol=1e-3, atol=1e-4)))


close("cholesky", jnp.linalg.cholesky(spd), np.linalg.cholesky(spd))
if jax.devices()[0].salus_linalg == "plain":
    close("solve", jnp.linalg.solve(spd, b), np.linalg.solve(spd, b))
    q, r = jnp.linalg.qr(a)
    close("qr", q @ r, a)

    close("eigh", jnp.linalg.eigh(spd)[0], np.linalg.eigh(spd)[0])
    close("svd", jnp.linalg.svd(a)[1], np.linalg.svd(a)[1])
    close("det", jnp.linalg.det(a), np.linalg.det(a))
