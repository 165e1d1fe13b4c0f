"""The examples on a JAX that is about a year older.

It runs from an environment of its own, without our package: `salus run` brings the plugin along.
There is no run without Salus to compare with: this JAX is too old for the vendor's plugin.
"""

import os
import re
from pathlib import Path

import pytest

from harness import EXAMPLES, ROOT, run

OLD = Path(os.environ.get("SALUS_TEST_OLD_VENV") or ROOT / ".venv-old")


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
