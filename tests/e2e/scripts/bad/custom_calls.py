"""Calls of JAX's LAPACK targets that JAX would not make: each is an error or harmless."""

import random
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.cpu import _lapack

jax.config.update("jax_enable_x64", True)
rng = random.Random(int(sys.argv[1]))

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
REAL = {"c": np.float32, "z": np.float64}

# How many operands and results each has: with any other number, no shape is looked at.
COUNTS = {
    "trsm": (2, 1),
    "getrf": (1, 3),
    "potrf": (1, 2),
    "geqrf": (1, 2),
    "geqp3": (2, 3),
    "gqr": (2, 1),
    "mqr": (3, 1),
    "gtsv": (4, 5),
    "gesdd": (1, 5),
    "gesvd": (1, 5),
    "evd": (1, 3),
    "geev": (1, 5),
    "gees": (1, 6),
    "gehrd": (1, 3),
    "trd": (1, 5),
    "perturbed": (4, 1),
}


def attributes():
    """All that any of them has, right as a rule."""

    def letter(letters):
        return np.uint8(ord(rng.choice(letters) if rng.random() < 0.95 else "x"))

    return {
        "side": letter("LR"),
        "uplo": letter("LU"),
        "trans_x": letter("NTC"),
        "diag": letter("NU"),
        "mode": letter("NVAS"),
        "sort": letter("N"),
        "compute_left": letter("NV"),
        "compute_right": letter("NV"),
        "left": np.bool_(rng.random() < 0.5),
        "transpose": np.bool_(rng.random() < 0.5),
        "low": np.int32(rng.randrange(-1, 4)),
        "high": np.int32(rng.randrange(-1, 7)),
    }


def array(letter, batch, n):
    """A shape and a type that fit somewhere, as a rule."""
    kind = TYPES[letter]
    shape = rng.choice([(n, n), (n, n), (n, n), (n,), (n - 1,), (), (n, n + 2), (n + 1, n), (0, n)])
    if rng.random() < 0.1:
        batch = (3,)
    if shape == () or rng.random() < 0.1:
        kind = np.int32
    elif len(shape) == 1 and rng.random() < 0.5:
        kind = REAL.get(letter, kind)
    return jax.ShapeDtypeStruct((*batch, *shape), kind)


refused, ran = 0, 0
for target in sorted(_lapack.registrations()):
    family = next(name for name in COUNTS if name in target)
    operands, results = COUNTS[family]
    letter = target.removeprefix("lapack_")[0]
    letter = letter if target.startswith("lapack_") else "d"
    if letter in "cz" and family in ("geev", "gees"):
        results -= 1
    for _ in range(3):
        batch, n = rng.choice([(), (2,), (0,), (2, 3)]), rng.choice([1, 2, 5])
        given = [array(letter, batch, n) for _ in range(operands)]
        wanted = [array(letter, batch, n) for _ in range(results)]
        chosen = attributes()
        call = jax.jit(lambda *x: jax.ffi.ffi_call(target, wanted)(*x, **chosen))  # noqa: B023
        try:
            jax.block_until_ready(call(*(jnp.ones(one.shape, one.dtype) for one in given)))
            ran += 1
        except jax.errors.JaxRuntimeError as error:
            assert f"the custom call `{target}`" in str(error), error
            assert error.args[0].startswith("INVALID_ARGUMENT"), error
            refused += 1
print("refused", refused, "ran", ran)
np.testing.assert_allclose(jnp.linalg.cholesky(4.0 * jnp.eye(3)), 2 * np.eye(3))
print("DONE")
