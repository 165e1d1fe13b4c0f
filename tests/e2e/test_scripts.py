"""The same script with and without Salus: the same bits.

Both runs use the same plugin with one device and the same thread pool, and print a digest of
every result; what they print must be equal. The plugin alone has no LAPACK: what needs it runs on
JAX's own CPU backend instead, whose XLA is another one, and prints digests of what LAPACK computed
and numbers of the rest.
"""

import pytest

from harness import SCRIPTS

# Not run here: they take arguments or are no scripts.
ELSEWHERE = {"report", "compilation_cache"}

NEEDS_LAPACK = {"linalg", "linalg_primitives", "numpyro_nuts"}

# A child that ends normally crashes with the vendor's plugin in the process; with Salus it
# must not, so there is nothing to compare it with.
ONLY_WITH_SALUS = {"fork"}

# What the stand-in for CUDA cannot do, as no GPU can, or has no handlers for.
NOT_ON_STANDIN = {
    "host_views": "arrays of a GPU have no buffers that Python could look into",
    "linalg": "the handlers are cuSOLVER's: `make test-cuda`",
    "linalg_primitives": "the handlers are cuSOLVER's: `make test-cuda`",
}

# JAX lowers these otherwise for CUDA, or they print what the device has: compared with the
# stand-in itself.
LOWERED_FOR_CUDA = {"flax_linen", "flax_nnx", "memories"}

# Every file is a test: one that is added is run.
NAMES = sorted(
    path.stem
    for path in SCRIPTS.glob("*.py")
    if path.stem not in ELSEWHERE | ONLY_WITH_SALUS and not path.stem.startswith("_")
)


@pytest.mark.parametrize("name", NAMES)
def test_same_bits(both_ways, tested_device, name):
    on_standin = tested_device == "standin"
    if on_standin and name in NOT_ON_STANDIN:
        pytest.skip(NOT_ON_STANDIN[name])
    on_standin = on_standin and name in LOWERED_FOR_CUDA
    both_ways(f"{name}.py", on_cpu=name in NEEDS_LAPACK, on_standin=on_standin)


@pytest.mark.parametrize("name", sorted(ONLY_WITH_SALUS))
def test_runs(run_salus, shared_daemon, name):
    result = run_salus(f"{name}.py", daemon=shared_daemon).ok()
    assert result.stdout, "nothing was reported"
