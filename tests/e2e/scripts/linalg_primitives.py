"""What JAX makes of linear algebra: each routine of LAPACK, in every element type, to the bit."""

import jax
import numpy as np
from jax._src.lax.linalg import geqrf  # it has no public name
from jax.experimental.sparse import BCSR
from jax.lax import linalg

from report import report

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)


def matrices(dtype, *shape):
    values = rng.normal(size=shape)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.normal(size=shape)
    return values.astype(dtype)


def report_with_nan(name, values):
    """The bits of a NaN mean nothing; where one is, does."""
    for index, value in enumerate(jax.tree_util.tree_leaves(values)):
        value = np.asarray(value)
        nan = np.isnan(value)
        report(f"{name}[{index}], {nan.sum()} NaN", np.where(nan, 0, value))


def qr_multiply(a, c, left, transpose):
    reflections, factors = geqrf(a)
    return linalg.ormqr(reflections, factors, c, left=left, transpose=transpose)


def calls(square, tall, wide, spd):
    """The name of each routine, and a function that calls it."""
    n = square.shape[-1]
    svd = linalg.SvdAlgorithm
    shift = 3 * np.eye(n, dtype=square.dtype)
    yield "potrf", lambda: linalg.cholesky(spd)
    yield "getrf", lambda: linalg.lu(square)
    yield "getrf tall", lambda: linalg.lu(tall)
    yield "geqrf and orgqr", lambda: linalg.qr(tall, full_matrices=True)
    yield "geqrf wide", lambda: linalg.qr(wide, full_matrices=False)
    yield "geqp3", lambda: linalg.qr(tall, pivoting=True, full_matrices=False)
    yield "ormqr", lambda: qr_multiply(tall, tall, True, True)
    yield "ormqr right", lambda: qr_multiply(tall, tall.swapaxes(-1, -2), False, False)
    for case in [
        dict(left_side=True, lower=True),
        dict(left_side=True, lower=False, transpose_a=True),
        dict(left_side=False, lower=True, transpose_a=True, conjugate_a=True),
        dict(left_side=False, lower=False, unit_diagonal=True),
    ]:
        a = (np.tril if case["lower"] else np.triu)(square) + shift
        b = square[..., :3] if case["left_side"] else square[..., :3, :]
        yield f"trsm {case}", lambda a=a, b=b, case=case: linalg.triangular_solve(a, b, **case)
    yield "gesdd all", lambda: linalg.svd(tall, full_matrices=True)
    yield "gesdd", lambda: linalg.svd(wide, full_matrices=False)
    yield "gesdd values", lambda: linalg.svd(tall, compute_uv=False)
    yield "gesvd", lambda: linalg.svd(tall, full_matrices=False, algorithm=svd.QR)
    yield "gesvd values", lambda: linalg.svd(wide, compute_uv=False, algorithm=svd.QR)
    yield "syevd", lambda: linalg.eigh(spd)
    yield "syevd upper", lambda: linalg.eigh(spd, lower=False, symmetrize_input=False)
    yield "geev", lambda: linalg.eig(square)
    yield (
        "geev values",
        lambda: linalg.eig(
            square, compute_left_eigenvectors=False, compute_right_eigenvectors=False
        ),
    )
    yield "gees", lambda: linalg.schur(square)
    yield "gees form", lambda: linalg.schur(square, compute_schur_vectors=False)
    yield "gehrd", lambda: linalg.hessenberg(square)
    yield "sytrd", lambda: linalg.tridiagonal(spd)
    yield "sytrd upper", lambda: linalg.tridiagonal(spd, lower=False)
    diagonals = [square[..., :, i] + 4 * (i == 1) for i in range(3)]
    yield "gtsv", lambda: linalg.tridiagonal_solve(*diagonals, square[..., :2])


for dtype in (np.float32, np.float64, np.complex64, np.complex128):
    square, tall = matrices(dtype, 2, 3, 20, 20), matrices(dtype, 2, 20, 7)
    spd = square @ square.conj().swapaxes(-1, -2) + 20 * np.eye(20, dtype=dtype)
    for name, call in calls(square, tall, tall.swapaxes(-1, -2), spd):
        report(f"{np.dtype(dtype).name} {name}", call())

# Large enough that the library works in blocks and threads.
square = matrices(np.float64, 300, 300)
spd = square @ square.T + 300 * np.eye(300)
LARGE = ("potrf", "getrf", "geqrf and orgqr", "geqp3", "gesdd", "gesvd", "syevd", "geev", "gees")
for name, call in calls(square, square[:, :120], square[:120], spd):
    if name in LARGE:
        report(f"large {name}", call())

# Not finite, not positive definite, singular: NaN where JAX has it.
broken = np.stack([square[:5, :5], np.full((5, 5), np.nan), np.ones((5, 5)), -np.eye(5)])
broken[1, 0, 0] = np.inf
broken = broken.astype(np.float32)
for name, call in calls(broken, broken[..., :3], broken[:, :3], broken):
    report_with_nan(f"broken {name}", call())

# Sparse, which has a routine of its own.
for dtype in (np.float32, np.complex128, np.int32):
    dense = np.where(rng.random((40, 30)) < 0.3, matrices(np.float64, 40, 30) * 9, 0).astype(dtype)
    matrix = BCSR.fromdense(dense, nse=500)
    right = (9 * matrices(np.float64, 30, 5)).astype(dtype)
    report(f"{np.dtype(dtype).name} sparse", [matrix @ right, matrix @ right[:, 0]])

# Nothing at all.
empty = np.zeros((3, 0, 0), np.float32)
report("empty", [linalg.cholesky(empty), linalg.lu(empty), linalg.eigh(empty)])
none = np.zeros((0, 4, 4), np.float32)
report("none", [linalg.cholesky(none), linalg.lu(none), linalg.svd(none), linalg.eig(none)])
report("rows only", linalg.lu(np.zeros((4, 0), np.float32)))
