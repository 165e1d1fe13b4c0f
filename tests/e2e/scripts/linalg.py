"""All of `jnp.linalg` and `jax.scipy.linalg`: against numpy, and as on JAX's own CPU backend."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

from report import report_about

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
TOLERANCE = {np.float32: 2e-3, np.complex128: 1e-9}


class Called:
    """A module that remembers which of its functions were asked for."""

    def __init__(self, module):
        self.module, self.names = module, set()

    def __getattr__(self, name):
        self.names.add(name)
        return getattr(self.module, name)

    def forgotten(self):
        return {name for name in dir(self.module) if name[0] != "_"} - self.names


la, sla = Called(jnp.linalg), Called(jax.scipy.linalg)


def check(name, value, expected, tolerance):
    np.testing.assert_allclose(
        np.asarray(value), expected, rtol=tolerance, atol=tolerance, err_msg=name
    )
    report_about(name, value, tolerance)


def decompositions(dtype, a, tall, spd, b, check):
    """Everything that has LAPACK below it."""
    eye = np.eye(len(a))
    check("cholesky", la.cholesky(spd), np.linalg.cholesky(spd))
    check("upper", la.cholesky(spd, upper=True), np.linalg.cholesky(spd).conj().T)
    q, r = la.qr(tall)
    check("qr", q @ r, tall)
    check("orthogonal", q.conj().T @ q, np.eye(tall.shape[1]))
    u, s, vt = la.svd(tall, full_matrices=False)
    check("svd", u * s @ vt, tall)
    check("svdvals", la.svdvals(tall), np.linalg.svd(tall)[1])
    w, v = la.eigh(spd)
    check("eigh", v * w @ v.conj().T, spd)
    check("eigvalsh", la.eigvalsh(spd), np.linalg.eigvalsh(spd))
    w, v = la.eig(a)
    check("eig", v * w @ la.inv(v), a)
    check("eigvals", jnp.sort(jnp.abs(la.eigvals(a))), np.sort(abs(np.linalg.eigvals(a))))
    check("solve", la.solve(a, b), np.linalg.solve(a, b))
    check("inv", la.inv(a), np.linalg.inv(a))
    check("det", la.det(a) / np.linalg.det(a), 1)
    check("slogdet", la.slogdet(spd)[1], np.linalg.slogdet(spd)[1])
    check("lstsq", la.lstsq(tall, tall[:, 0])[0], np.eye(tall.shape[1])[0])
    check("pinv", la.pinv(tall), np.linalg.pinv(tall))
    check("cond", la.cond(spd) / np.linalg.cond(spd), 1)
    check("matrix_rank", la.matrix_rank(tall @ tall.T), tall.shape[1])
    check("norm", la.norm(a, 2), np.linalg.norm(a, 2))
    check("matrix_norm", la.matrix_norm(a, ord="nuc"), np.linalg.norm(a, "nuc"))
    check("matrix_power", la.matrix_power(spd, -1) @ spd, eye)
    cube = a[:, :, None].reshape(len(a), 2, -1)
    check("tensorinv", la.tensorinv(cube, ind=1).reshape(a.shape), np.linalg.inv(a))
    check("tensorsolve", la.tensorsolve(cube, b[:, 0]).ravel(), np.linalg.solve(a, b[:, 0]))

    check("scipy cholesky", sla.cholesky(spd, lower=True), np.linalg.cholesky(spd))
    check("cho_solve", sla.cho_solve(sla.cho_factor(spd), b), np.linalg.solve(spd, b))
    check("scipy det", sla.det(a) / np.linalg.det(a), 1)
    w, v = sla.eigh(spd)
    check("scipy eigh", v * w @ v.conj().T, spd)
    check("expm", sla.expm(0.1 * a) @ sla.expm(-0.1 * a), eye)
    h, q = sla.hessenberg(a, calc_q=True)
    check("hessenberg", q @ h @ q.conj().T, a)
    check("below", jnp.tril(h, -2), 0 * eye)
    check("scipy inv", sla.inv(a), np.linalg.inv(a))
    p, lower, upper = sla.lu(a)
    check("lu", p @ lower @ upper, a)
    check("lu_solve", sla.lu_solve(sla.lu_factor(a), b), np.linalg.solve(a, b))
    u, p = sla.polar(a)
    check("polar", u @ p, a)
    q, r = sla.qr(tall, mode="economic")
    check("scipy qr", q @ r, tall)
    q, r, order = sla.qr(tall, mode="economic", pivoting=True)
    check("pivoted qr", q @ r, tall[:, order])
    q, r = sla.qr_multiply(tall, np.eye(tall.shape[1], dtype=dtype), mode="left")
    check("qr_multiply", q @ r, tall)
    t, z = sla.schur(a)
    check("schur", z @ t @ z.conj().T, a)
    t, z = sla.rsf2csf(t, z)
    check("rsf2csf", z @ t @ z.conj().T, a)
    check("scipy solve", sla.solve(spd, b, assume_a="pos"), np.linalg.solve(spd, b))
    triangle = np.tril(spd)
    check("triangular", triangle @ sla.solve_triangular(triangle, b, lower=True), b)
    u, s, vt = sla.svd(tall, full_matrices=False, lapack_driver="gesvd")
    check("scipy svd", u * s @ vt, tall)
    root = sla.sqrtm(spd)
    check("sqrtm", root @ root, spd)
    x = sla.solve_sylvester(spd, spd[:4, :4], b[:, :1] * np.ones(4, dtype))
    check("sylvester", spd @ x + x @ spd[:4, :4], b[:, :1] * np.ones(4, dtype))


# One of each kind: `linalg_primitives.py` has the others.
for dtype in (np.float32, np.complex128):
    i = 1j if np.issubdtype(dtype, np.complexfloating) else 0
    tolerance, name = TOLERANCE[dtype], np.dtype(dtype).name

    def normal(*shape, i=i, dtype=dtype):
        return (rng.normal(size=shape) + i * rng.normal(size=shape)).astype(dtype)

    a = normal(12, 12) + 4 * np.eye(12, dtype=dtype)
    spd = a @ a.conj().T + 12 * np.eye(12, dtype=dtype)

    def check_name(what, value, expected, tolerance=tolerance, name=name):
        check(f"{name} {what}", value, expected, tolerance)

    decompositions(dtype, a, normal(12, 6), spd, normal(12, 3), check_name)

# What follows has one type.
a, b, spd = np.real(a), np.real(normal(12, 3)), np.real(spd)
diagonal, off = spd.diagonal(), spd.diagonal(1)
matrix = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
w, v = sla.eigh_tridiagonal(diagonal, off)
check("eigh_tridiagonal", v * w @ v.T, matrix, 1e-8)
shifted = [np.append(0, off), diagonal - float(w[3]), np.append(off, 0)]
x = jax.lax.linalg.tridiagonal_solve(*shifted, b, perturb_singular=True)
vector = x[:, 0] / jnp.linalg.norm(x[:, 0])
check("perturbed", matrix @ vector, w[3] * vector, 1e-8)
check("expm_frechet", sla.expm_frechet(0.1 * a, b @ b.T)[0], sla.expm(0.1 * a), 1e-9)
check("funm", sla.funm(0.1 * spd, jnp.exp), sla.expm(0.1 * spd), 1e-6)

# Under transformations.
stack = np.stack([spd, 2 * spd, spd + a @ a.T])
check("vmap", jax.vmap(la.inv)(stack), np.linalg.inv(stack), 1e-9)
check("batched", la.eigvalsh(stack), np.linalg.eigvalsh(stack), 1e-9)
check("grad", jax.grad(lambda m: la.slogdet(m)[1])(spd), np.linalg.inv(spd).T, 1e-9)
for name, function in {
    "cholesky": la.cholesky,
    "qr": lambda m: la.qr(m)[1],
    "eigh": lambda m: la.eigh(m)[0],
    "svd": la.svdvals,
    "solve": lambda m: la.solve(m, b),
    "eigvals": lambda m: jnp.abs(la.eigvals(m)),
    "expm": lambda m: sla.expm(0.1 * m),
    "lu": lambda m: sla.lu(m)[2],
}.items():
    gradient = jax.grad(lambda m, function=function: (function(m) ** 2).sum())(spd)
    report_about(f"grad {name}", gradient / jnp.abs(gradient).max(), 1e-6)
tangent = jax.jvp(jax.jit(la.inv), (spd,), (a,))[1]
check("jvp", tangent, -np.linalg.inv(spd) @ a @ np.linalg.inv(spd), 1e-9)

# As models begin with.
for name, init in {
    "orthogonal": jax.nn.initializers.orthogonal(),
    "delta": jax.nn.initializers.delta_orthogonal(),
}.items():
    report_about(f"{name} initializer", init(jax.random.key(0), (3, 8, 8)), 1e-9)
normal = jax.random.multivariate_normal(jax.random.key(0), jnp.zeros(12), spd)
report_about("multivariate normal", normal, 1e-6)

# These only multiply and arrange.
u, v = a[0, :3], a[1, :3]
check("cross", la.cross(u, v), np.cross(u, v), 1e-9)
check("diagonal", la.diagonal(a), a.diagonal(), 0)
check("matmul", la.matmul(a, a), a @ a, 1e-9)
check("multi_dot", la.multi_dot([a, a, a]), a @ a @ a, 1e-9)
check("outer", la.outer(u, v), np.outer(u, v), 1e-9)
check("tensordot", la.tensordot(a, a), (a * a).sum(), 1e-9)
check("trace", la.trace(a), np.trace(a), 1e-9)
check("transpose", la.matrix_transpose(a), a.T, 0)
check("vecdot", la.vecdot(u, v), u @ v, 1e-9)
check("vector_norm", la.vector_norm(u), np.linalg.norm(u), 1e-9)
for name, value in {
    "block_diag": sla.block_diag(a, b),
    "circulant": sla.circulant(u),
    "companion": sla.companion(u),
    "convolution_matrix": sla.convolution_matrix(u, 4),
    "dft": sla.dft(4),
    "fiedler": sla.fiedler(u),
    "fiedler_companion": sla.fiedler_companion(u),
    "hadamard": sla.hadamard(4),
    "hankel": sla.hankel(u),
    "helmert": sla.helmert(4),
    "hilbert": sla.hilbert(4),
    "invhilbert": sla.invhilbert(4),
    "invpascal": sla.invpascal(4),
    "leslie": sla.leslie(u, v[:2]),
    "pascal": sla.pascal(4),
    "toeplitz": sla.toeplitz(u),
}.items():
    report_about(name, value, 1e-6)

assert not la.forgotten(), la.forgotten()
assert not sla.forgotten(), sla.forgotten()
