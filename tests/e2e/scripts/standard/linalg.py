"""All of `jnp.linalg`: types, batches, vmap, derivatives, odd shapes."""

import jax
import jax.numpy as jnp
import numpy as np

from show import show, show_all

jax.config.update("jax_enable_x64", True)

# Every type that LAPACK has, some of them in batches.
KINDS = {"float32": (), "float64": (2, 3), "complex64": (2,), "complex128": ()}


def matrix(seed, *shape, dtype="float32"):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=shape)
    if np.issubdtype(np.dtype(dtype), np.complexfloating):
        numbers = numbers + 1j * rng.normal(size=shape)
    return jnp.asarray(numbers.astype(dtype))


def adjoint(a):
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def positive(a):
    return a @ adjoint(a) + a.shape[-1] * jnp.eye(a.shape[-1], dtype=a.dtype)


def everything(a, b, tall):
    """One program with all functions: each is lowered for the type, and compiled once."""
    la = jnp.linalg
    spd, hermitian = positive(a), a + adjoint(a)
    u, s, vt = la.svd(tall, full_matrices=False)
    return {
        "cholesky": la.cholesky(spd),
        "cholesky_upper": la.cholesky(spd, upper=True),
        "cond": la.cond(a),
        "det": la.det(a),
        "eig": la.eig(a),
        "eigh": la.eigh(hermitian),
        "eigvals": la.eigvals(a),
        "eigvalsh": la.eigvalsh(hermitian),
        "inv": la.inv(a),
        "matrix_power": la.matrix_power(a, -2),
        "matrix_rank": la.matrix_rank(tall),
        "norm_2": la.norm(tall, ord=2, axis=(-2, -1)),
        "norm_nuc": la.norm(tall, ord="nuc", axis=(-2, -1)),
        "pinv": la.pinv(tall),
        "qr": la.qr(tall),
        "qr_complete": la.qr(tall, mode="complete"),
        "qr_r": la.qr(tall, mode="r"),
        "slogdet": la.slogdet(a),
        "solve": la.solve(a, b),
        "svd": (u * s[..., None, :]) @ vt,
        "svd_full": [abs(part) for part in la.svd(tall)],
        "svdvals": la.svdvals(tall),
    }


for dtype, batch in KINDS.items():
    shapes = [(*batch, *shape) for shape in [(4, 4), (4, 2), (5, 3)]]
    given = [matrix(seed, *shape, dtype=dtype) for seed, shape in enumerate(shapes)]
    for name, value in sorted(jax.jit(everything)(*given).items()):
        show(f"{name}_{dtype}", value)

a, b = matrix(10, 2, 3, 4, 4), matrix(11, 3, 4, 2)


def mapped(a, b):
    names = ("eigvals", "eigvalsh", "qr", "slogdet", "svdvals")
    found = {f"{name}_vmap": jax.vmap(jax.vmap(getattr(jnp.linalg, name)))(a) for name in names}
    return found | {
        "cholesky_vmap": jax.vmap(jnp.linalg.cholesky)(positive(a)),
        "solve_one_matrix": jax.vmap(jnp.linalg.solve, in_axes=(None, 0))(a[0, 0], b),
    }


show_all(mapped, a, b)
for dtype in KINDS:
    given = matrix(12, 5, 3, dtype=dtype), matrix(13, 5, 2, dtype=dtype)
    show(f"lstsq_{dtype}", jax.jit(jnp.linalg.lstsq)(*given))

# Derivatives, forwards and backwards.
square = matrix(20, 3, 3, dtype="float64")
SCALARS = {
    "cholesky": lambda a: jnp.sum(jnp.linalg.cholesky(positive(a)) ** 2),
    "det": jnp.linalg.det,
    "eigh": lambda a: jnp.sum(jnp.linalg.eigvalsh(a + a.T) ** 3),
    "inv": lambda a: jnp.sum(jnp.linalg.inv(a) ** 2),
    "qr": lambda a: jnp.sum(jnp.linalg.qr(a)[1] ** 3),
    "slogdet": lambda a: jnp.linalg.slogdet(a)[1],
    "solve": lambda a: jnp.sum(jnp.linalg.solve(a, jnp.arange(3.0)) ** 2),
    "svd": lambda a: jnp.sum(jnp.linalg.svd(a, compute_uv=False) ** 3),
    "svd_vectors": lambda a: jnp.sum(jnp.linalg.svd(a)[0] ** 4),
    "eig": lambda a: jnp.sum(jnp.abs(jnp.linalg.eigvals(a)) ** 2),
    "pinv": lambda a: jnp.sum(jnp.linalg.pinv(a) ** 2),
}


def derivatives(a):
    found = {f"grad_{name}": jax.grad(scalar)(a) for name, scalar in SCALARS.items()}
    return found | {
        "jvp_solve": jax.jvp(SCALARS["solve"], (a,), (jnp.ones_like(a),)),
        "hessian_det": jax.hessian(jnp.linalg.det)(a),
    }


show_all(derivatives, square)

# Where LAPACK says no: NaN or infinity, never an error.


def hard(singular):
    la, nan = jnp.linalg, jnp.full((2, 2), jnp.nan)
    return {
        "singular_inv": jnp.isfinite(la.inv(singular)),
        "singular_det": la.det(singular),
        "indefinite_cholesky": la.cholesky(-jnp.eye(3)),
        "nan_svd": la.svd(nan, compute_uv=False),
        "nan_eigh": la.eigvalsh(nan),
        "one_by_one": la.eigh(jnp.array([[2.0]])),
        "empty": la.qr(jnp.zeros((0, 3))),
        "empty_batch": la.inv(jnp.zeros((0, 2, 2))),
        "wide": la.svd(matrix(30, 2, 5), full_matrices=False)[1],
        "tensorsolve": la.tensorsolve(matrix(31, 2, 3, 6), matrix(32, 2, 3)),
        "tensorinv": la.tensorinv(matrix(33, 2, 3, 6), ind=2),
        "multi_dot": la.multi_dot([matrix(34, 2, 3), matrix(35, 3, 4), matrix(36, 4, 2)]),
    }


show_all(hard, jnp.ones((3, 3)))
