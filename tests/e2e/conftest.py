"""Fixtures of the end-to-end tests. What they do is in `harness.py`."""

import concurrent.futures
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import (  # noqa: E402
    SCRIPTS,
    Daemon,
    Result,
    Sandbox,
    assert_same_report,
    python,
    run,
    salus_binary,
    salus_library,
    vendor_plugin,
)


def pytest_sessionstart(session):
    missing = [p for p in (salus_binary(), salus_library(), vendor_plugin()) if not p.exists()]
    if missing:
        names = ", ".join(f"`{path}`" for path in missing)
        pytest.exit(f"missing: {names}\nhint: `make test` builds the wheel and installs it", 2)


@pytest.fixture(scope="session")
def salus_bin() -> Path:
    return salus_binary()


def _new_sandbox():
    # Not pytest's own directory: its path is too long for a socket's name (108 bytes).
    directory = Path(tempfile.mkdtemp(prefix="salus-e2e-"))
    sandbox = Sandbox(directory)
    yield sandbox
    try:
        sandbox.assert_nothing_left()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def sandbox():
    yield from _new_sandbox()


@pytest.fixture(scope="session")
def shared_sandbox():
    yield from _new_sandbox()


@pytest.fixture
def make_daemon(salus_bin, sandbox):
    """`make_daemon(config=…, device=…)` starts a daemon of this test's own."""
    daemons = []

    def make(**options) -> Daemon:
        daemons.append(Daemon(sandbox, salus_bin, **options))
        return daemons[-1].start()

    yield make
    for daemon in reversed(daemons):
        daemon.stop()


@pytest.fixture
def daemon(make_daemon) -> Daemon:
    return make_daemon()


@pytest.fixture(scope="session")
def shared_daemon(salus_bin, shared_sandbox):
    """One daemon for all scripts that only compute: a service has many jobs one after another."""
    daemon = Daemon(shared_sandbox, salus_bin).start()
    yield daemon
    daemon.stop()


@pytest.fixture
def run_direct(sandbox):
    def call(script, *args, on_cpu: bool = False, **more: str) -> Result:
        env = (sandbox.cpu() if on_cpu else sandbox.direct()) | more
        return run(sandbox, python(SCRIPTS / script, *args), env)

    return call


@pytest.fixture
def run_salus(sandbox):
    def call(script, *args, daemon: Daemon, **more: str) -> Result:
        env = sandbox.salus(daemon.socket) | more
        return run(sandbox, python(SCRIPTS / script, *args), env)

    return call


@pytest.fixture
def both_ways(run_direct, run_salus, shared_daemon):
    """Runs a script with and without Salus, side by side; the printed results must be equal.

    Without is the vendor's plugin, or JAX's own CPU backend.
    """

    def call(script, *args, on_cpu: bool = False, **more: str) -> Result:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            through = pool.submit(run_salus, script, *args, daemon=shared_daemon, **more)
            direct = pool.submit(run_direct, script, *args, on_cpu=on_cpu, **more)
        expected, result = direct.result().ok(), through.result().ok()
        assert expected.stdout, f"`{script}` reported nothing"
        assert_same_report(result.stdout, expected.stdout)
        return result

    return call
