"""`jnp.linalg` and friends: against numpy, and with the same bits each way."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

from report import raises, report

rng = np.random.default_rng(0)
a = rng.normal(size=(12, 12)).astype(np.float32)
tall = rng.normal(size=(20, 8)).astype(np.float32)
spd = (a @ a.T + 12 * np.eye(12)).astype(np.float32)
b = rng.normal(size=(12, 3)).astype(np.float32)


def check(name, value, expected, tolerance=2e-4):
    np.testing.assert_allclose(np.asarray(value), expected, rtol=tolerance, atol=tolerance)
    report(name, value)


check("cholesky", jnp.linalg.cholesky(spd), np.linalg.cholesky(spd))
q, r = jnp.linalg.qr(tall)
check("qr", q @ r, tall)
check("orthogonal", q.T @ q, np.eye(8))
u, s, vt = jnp.linalg.svd(tall, full_matrices=False)
check("svd", u * s @ vt, tall)
check("singular values", s, np.linalg.svd(tall)[1])
w, v = jnp.linalg.eigh(spd)
check("eigh", v * w @ v.T, spd, 1e-3)
w, v = jnp.linalg.eig(a)
check("eig", v * w @ jnp.linalg.inv(v), a, 1e-3)
check("eigvals", jnp.sort(jnp.abs(jnp.linalg.eigvals(a))), np.sort(abs(np.linalg.eigvals(a))))
check("solve", jnp.linalg.solve(a, b), np.linalg.solve(a, b), 1e-3)
check("inv", jnp.linalg.inv(spd), np.linalg.inv(spd))
check("det", jnp.linalg.det(a) / np.linalg.det(a), 1)
check("slogdet", jnp.linalg.slogdet(spd)[1], np.linalg.slogdet(spd)[1])
check("lstsq", jnp.linalg.lstsq(tall, tall[:, 0])[0], np.eye(8)[0])
check("pinv", jnp.linalg.pinv(tall), np.linalg.pinv(tall))
check("power", jnp.linalg.matrix_power(spd, -1), np.linalg.inv(spd))
p, lower, upper = jsl.lu(a)
check("lu", p @ lower @ upper, a)
check("cho_solve", jsl.cho_solve(jsl.cho_factor(spd), b), np.linalg.solve(spd, b))
check("triangular", np.tril(spd) @ jsl.solve_triangular(np.tril(spd), b, lower=True), b)
check("expm", jsl.expm(0.1 * a) @ jsl.expm(-0.1 * a), np.eye(12))
diagonals = np.array([[0, 1, 1, 1], [4, 4, 4, 4], [1, 1, 1, 0]], np.float32)
solved = jax.lax.linalg.tridiagonal_solve(*diagonals, b[:4])
matrix = np.diag(diagonals[1]) + np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
check("tridiagonal", matrix @ np.asarray(solved), b[:4])
hermitian = spd + 1j * (a - a.T)
check("complex eigh", jnp.linalg.eigvalsh(hermitian), np.linalg.eigvalsh(hermitian), 1e-3)
check("batched", jax.vmap(jnp.linalg.inv)(np.stack([spd, 2 * spd]))[1], np.linalg.inv(2 * spd))
gradient = jax.grad(lambda m: jnp.linalg.slogdet(m)[1])(spd)
check("gradient", gradient, np.linalg.inv(spd).T, 1e-3)
report("normal", jax.random.multivariate_normal(jax.random.key(0), jnp.zeros(12), spd))

# Without LAPACK there is no lowering of these, and the error says what to do instead.
raises(NotImplementedError, 'jax.devices("cpu")', jsl.hessenberg, a)
with jax.default_device(jax.devices("cpu")[0]):
    assert jsl.hessenberg(a).shape == a.shape

# JAX's own CPU in the same process keeps LAPACK.
at_home = jax.device_put(spd, jax.devices("cpu")[0])
assert "lapack" in jax.jit(jnp.linalg.cholesky).lower(at_home).as_text()
assert "lapack" not in jax.jit(jnp.linalg.cholesky).lower(spd).as_text()
np.testing.assert_allclose(jnp.linalg.cholesky(at_home), np.linalg.cholesky(spd), rtol=1e-4)
