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

# Every file is a test: one that is added is run.
NAMES = sorted(
    path.stem
    for path in SCRIPTS.glob("*.py")
    if path.stem not in ELSEWHERE | ONLY_WITH_SALUS and not path.stem.startswith("_")
)


@pytest.mark.parametrize("name", NAMES)
def test_same_bits(both_ways, name):
    both_ways(f"{name}.py", on_cpu=name in NEEDS_LAPACK)


@pytest.mark.parametrize("name", sorted(ONLY_WITH_SALUS))
def test_runs(run_salus, shared_daemon, name):
    result = run_salus(f"{name}.py", daemon=shared_daemon).ok()
    assert result.stdout, "nothing was reported"
