"""The examples, and linear algebra, on a JAX that is about a year older.

It runs from an environment of its own, without our package: `salus run` brings the plugin along.
There is no run without Salus to compare with: this JAX is too old for the vendor's plugin.
"""

import os
import re
from pathlib import Path

import pytest

from harness import EXAMPLES, ROOT, run

OLD = Path(os.environ.get("SALUS_TEST_OLD_VENV") or ROOT / ".venv-old")

# Its calls of LAPACK have the same names as those of the newest.
LINALG = """
import jax, jax.numpy as jnp, jax.scipy.linalg as jsl, numpy as np
a = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
spd = a @ a.swapaxes(-1, -2) + 6 * np.eye(6, dtype=np.float32)
close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)
close(jnp.linalg.cholesky(spd), np.linalg.cholesky(spd))
close(jnp.linalg.solve(spd, a), np.linalg.solve(spd, a))
q, r = jnp.linalg.qr(a)
close(q @ r, a)
u, s, vt = jnp.linalg.svd(a)
close(u * s[:, None] @ vt, a)
w, v = jnp.linalg.eigh(spd)
close(v * w[:, None] @ v.swapaxes(-1, -2), spd)
w, v = jnp.linalg.eig(a[0])
close(v * w @ jnp.linalg.inv(v), a[0])
t, z = jsl.schur(a[0])
close(z @ t @ z.T, a[0])
h, q = jsl.hessenberg(a[0], calc_q=True)
close(q @ h @ q.T, a[0])
print("RAN")
"""


@pytest.fixture
def old_python():
    path = OLD / "bin" / "python"
    if not path.exists():
        if "SALUS_TEST_OLD_VENV" in os.environ:
            pytest.fail(f"`{path}` is missing; `make test` makes it")
        pytest.skip(f"`{path}` is missing; `make test` makes it")
    return path


@pytest.mark.parametrize("name", ["mlp.py", "cnn.py", "transformer.py"])
def test_example(shared_daemon, sandbox, salus_bin, old_python, name):
    env = sandbox.environment(SALUS_SOCKET=str(shared_daemon.socket))
    version = run(sandbox, [old_python, "-c", "import jax; print(jax.__version__)"], env).ok()
    assert version.stdout.strip() in ("0.6.2", "0.7.2"), version.stdout

    script = [salus_bin, "run", "--", old_python, EXAMPLES / name, "--steps", "40"]
    first, second = run(sandbox, script, env).ok(), run(sandbox, script, env).ok()
    assert first.stdout == second.stdout
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", first.stdout)]
    assert losses[-1] < losses[0], first.stdout
    assert first.stderr == "", first.text()


def test_linear_algebra(shared_daemon, sandbox, salus_bin, old_python):
    env = sandbox.environment(SALUS_SOCKET=str(shared_daemon.socket))
    result = run(sandbox, [salus_bin, "run", "--", old_python, "-c", LINALG], env).ok()
    assert result.stdout == "RAN\n", result.text()
