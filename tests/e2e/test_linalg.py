"""LAPACK behind Salus: where it comes from, what happens without it, and what a job may say to it.

That it computes what JAX's own CPU backend computes is in `test_scripts.py`.
"""

import json
import sysconfig
from pathlib import Path

import pytest

from harness import SCRIPTS, descendants, python, run

CHOLESKY = "import jax.numpy as jnp; print('RAN', jnp.linalg.cholesky(4 * jnp.eye(2)).sum())"


@pytest.fixture
def without_scipy(sandbox):
    """The packages that Salus looks at, without SciPy."""
    place = sandbox.directory / "site-packages"
    place.mkdir()
    (place / "xla_plugins").symlink_to(Path(sysconfig.get_path("purelib")) / "xla_plugins")
    return {"SALUS_SITE_PACKAGES": str(place)}


def lapack_of(sandbox, salus_bin, **env):
    shown = run(sandbox, [salus_bin, "doctor", "-o", "json"], sandbox.environment(**env))
    checks = json.loads(shown.stdout)["checks"]
    return next(check for check in checks if check["check"] == "lapack")


def test_without_lapack_only_linear_algebra_is_refused(
    make_daemon, sandbox, salus_bin, without_scipy
):
    daemon = make_daemon(env=without_scipy)
    refused = run(sandbox, python("-c", CHOLESKY), sandbox.salus(daemon.socket))
    refused.failed_with_exception()
    assert "lapack_spotrf_ffi" in refused.stderr, refused.text()
    job = python(SCRIPTS / "bad" / "first_use.py")
    assert "RAN on cpu 6.0" in run(sandbox, job, sandbox.salus(daemon.socket)).ok().stdout

    found = lapack_of(sandbox, salus_bin, **without_scipy)
    assert found["state"] == "absent", found
    assert "site-packages/scipy.libs" in found["found"], found
    assert "pip install scipy" in found["advice"], found


def test_another_lapack_by_configuration(make_daemon, sandbox, salus_bin, without_scipy):
    found = lapack_of(sandbox, salus_bin)
    assert found["state"] == "ok", found
    library = Path(found["found"])
    assert library.parent.name == "scipy.libs", found

    config = f"schema_version = 1\n[device]\nlapack = '{library}'\n"
    daemon = make_daemon(env=without_scipy, config=config)
    job = run(sandbox, python("-c", CHOLESKY), sandbox.salus(daemon.socket)).ok()
    assert job.stdout == "RAN 4.0\n"

    path = sandbox.directory / "wrong.toml"
    path.write_text("schema_version = 1\n[device]\nlapack = '/nowhere/lapack.so'\n")
    env = sandbox.environment()
    wrong = run(sandbox, [salus_bin, "serve", "--config", path, "--socket", "no.sock"], env)
    assert wrong.code == 2 and "/nowhere/lapack.so" in wrong.stderr, wrong.text()


def test_a_library_that_is_none_is_told(make_daemon, sandbox, salus_bin, without_scipy):
    library = sandbox.directory / "lapack.so"
    library.write_text("no library")
    config = f"schema_version = 1\n[device]\nlapack = '{library}'\n"
    daemon = make_daemon(env=without_scipy, config=config)
    refused = run(sandbox, python("-c", CHOLESKY), sandbox.salus(daemon.socket))
    refused.failed_with_exception()
    assert f"cannot open LAPACK {library}" in refused.stderr, refused.text()

    path = sandbox.directory / "salus.toml"
    found = lapack_of(sandbox, salus_bin, SALUS_CONFIG=str(path))
    assert found["state"] == "absent" and str(library) in found["found"], found


@pytest.mark.parametrize("seed", [1, 2])
def test_calls_that_jax_would_not_make(daemon, sandbox, seed):
    before = daemon.ps()["service"]
    command = python(SCRIPTS / "bad" / "custom_calls.py", seed)
    result = run(sandbox, command, sandbox.salus(daemon.socket)).ok()
    assert result.stdout.endswith("DONE\n"), result.text()
    assert daemon.ps()["service"]["restarts"] == before["restarts"] == 0, daemon.log_text()


def test_it_is_opened_when_it_is_needed_and_where(daemon, sandbox):
    """It starts threads, which a service without linear algebra and its compilers need not have."""

    def has_it(pid):
        return "openblas" in Path(f"/proc/{pid}/maps").read_text()

    host = daemon.ps()["service"]["device_host_pid"]
    run(sandbox, python(SCRIPTS / "bad" / "first_use.py"), sandbox.salus(daemon.socket)).ok()
    assert not has_it(host)
    run(sandbox, python("-c", CHOLESKY), sandbox.salus(daemon.socket)).ok()
    assert has_it(host)
    others = [pid for pid in descendants(daemon.process.pid) if pid != host]
    assert others, "there are compilers"
    assert not any(map(has_it, others))
