"""All of `jax.scipy.linalg`, and the decompositions that `jax.lax.linalg` has beyond it."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax.lax import linalg as ll

from show import show, show_all

jax.config.update("jax_enable_x64", True)

DTYPES = ("float32", "float64", "complex64", "complex128")


def matrix(seed, *shape, dtype="float64"):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=shape)
    if np.issubdtype(np.dtype(dtype), np.complexfloating):
        numbers = numbers + 1j * rng.normal(size=shape)
    return jnp.asarray(numbers.astype(dtype))


def adjoint(a):
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def everything(a, b):
    n = a.shape[-1]
    spd = a @ adjoint(a) + n * jnp.eye(n, dtype=a.dtype)
    upper = jnp.triu(a) + n * jnp.eye(n, dtype=a.dtype)
    factors = jsl.lu_factor(a)
    return {
        "cho_factor": jnp.triu(jsl.cho_factor(spd)[0]),
        "cho_solve": jsl.cho_solve(jsl.cho_factor(spd), b),
        "cholesky": jsl.cholesky(spd, lower=True),
        "eigh": jsl.eigh(a + adjoint(a)),
        "hessenberg": jsl.hessenberg(a, calc_q=True),
        "lu": jsl.lu(a),
        "lu_factor": factors,
        "lu_solve": jsl.lu_solve(factors, b),
        "lu_solve_transposed": jsl.lu_solve(factors, b, trans=1),
        "qr": jsl.qr(a, mode="economic"),
        "qr_pivoting": jsl.qr(a, pivoting=True),
        "solve": jsl.solve(a, b),
        "solve_pos": jsl.solve(spd, b, assume_a="pos"),
        "solve_triangular": jsl.solve_triangular(upper, b),
        "solve_triangular_transposed": jsl.solve_triangular(upper, b, trans=2),
        "svd": jsl.svd(a, compute_uv=False),
        "tridiagonal": ll.tridiagonal(a + adjoint(a)),
        "qr_multiply": jsl.qr_multiply(a, b.T, mode="right"),
    }


for dtype in DTYPES:
    a, b = matrix(0, 4, 4, dtype=dtype), matrix(1, 4, 2, dtype=dtype)
    for name, value in sorted(jax.jit(everything)(a, b).items()):
        show(f"{name}_{dtype}", value)
    show(f"schur_{dtype}", jsl.schur(a))

# Slow to compile.
a = matrix(0, 3, 3)
show("expm", jax.jit(jsl.expm)(a))
show("polar", jax.jit(jsl.polar)(a))
show("sqrtm", jax.jit(jsl.sqrtm)(a @ a.T + jnp.eye(3)))
show("schur_complex", jsl.schur(matrix(2, 3, 3), output="complex"))


def others(a, batch, right):
    diagonal, off = jnp.arange(1.0, 6.0), jnp.ones(4)
    lower, upper = jnp.append(0.0, off), jnp.append(off, 0.0)
    return {
        "rsf2csf": jsl.rsf2csf(*jsl.schur(a)),
        "sylvester": jsl.solve_sylvester(a, batch[0, :2, :2], right[0, :3]),
        "toeplitz": jsl.toeplitz(jnp.arange(3.0), jnp.arange(4.0)),
        "hilbert": jsl.hilbert(3),
        "eigh_tridiagonal": jsl.eigh_tridiagonal(diagonal, off, eigvals_only=True),
        "tridiagonal_solve": ll.tridiagonal_solve(lower, 3 + diagonal, upper, matrix(8, 5, 2)),
        "lu_solve_vmap": jax.vmap(lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b))(batch, right),
        "hessenberg_vmap": jax.vmap(jsl.hessenberg)(batch),
        "schur_vmap": jax.vmap(lambda a: jsl.schur(a)[0])(batch),
        "triangular_vmap": jax.vmap(jsl.solve_triangular, in_axes=(0, None))(
            jnp.triu(batch) + 3 * jnp.eye(4), right[0]
        ),
    }


batch, right = matrix(9, 3, 4, 4), matrix(10, 3, 4, 2)
show_all(others, matrix(3, 3, 3), batch, right)
show("funm", jsl.funm(matrix(4, 3, 3) + 4 * jnp.eye(3), jnp.log))

SCALARS = {
    "cho_solve": lambda a: jnp.sum(
        jsl.cho_solve(jsl.cho_factor(a @ a.T + jnp.eye(4)), right[0]) ** 2
    ),
    "lu": lambda a: jnp.sum(jsl.lu(a, permute_l=True)[1] ** 2),
    "solve_triangular": lambda a: jnp.sum(
        jsl.solve_triangular(jnp.triu(a) + 3 * jnp.eye(4), right[0]) ** 2
    ),
    "sqrtm_by_eigh": lambda a: jnp.sum(jsl.eigh(a @ a.T)[0] ** 0.5),
}
show_all(lambda a: {f"grad_{name}": jax.grad(f)(a) for name, f in SCALARS.items()}, batch[0])
