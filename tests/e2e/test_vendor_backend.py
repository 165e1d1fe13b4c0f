"""A vendor's own package beside Salus: JAX creates no client on the device that Salus shares."""

import os

import pytest

from harness import SCRIPTS, Daemon, python, run

SCRIPT = SCRIPTS / "vendor" / "backends.py"
PACKAGES = SCRIPTS / "vendor" / "packages"

FIRST = pytest.mark.parametrize("first", ["vendor", "salus"])


def run_job(sandbox, first, *names, **env):
    """What the job printed, and whether it created the client of the vendor."""
    created = sandbox.directory / "created"
    env = sandbox.environment(
        PYTHONPATH=str(PACKAGES),
        VENDOR_CREATED=str(created),
        **{"VENDOR_PLATFORM": "cuda", **env},
    )
    result = run(sandbox, python(SCRIPT, first, *names), env).ok()
    return result.stdout.splitlines(), created.exists()


@FIRST
def test_no_client_of_the_vendors_is_created_on_the_device_that_salus_serves(
    make_standin, sandbox, first
):
    daemon, _ = make_standin()
    said, created = run_job(sandbox, first, "gpu", "cuda", SALUS_SOCKET=str(daemon.socket))
    assert said == [
        "backends cpu cuda salus",
        "ours cuda salus",
        "default is ours True",
        "gpu is ours True",
        "cuda is ours True",
        "sum 6.0",
    ]
    assert not created
    assert daemon.ps()["device"]["platform"] == "cuda"


@FIRST
def test_another_backend_is_left_alone_and_salus_is_what_was_asked_for(
    shared_daemon, sandbox, first
):
    said, created = run_job(sandbox, first, SALUS_SOCKET=str(shared_daemon.socket))
    assert said == [
        "backends cpu cuda salus",
        "ours salus",
        "default is ours True",
        "sum 6.0",
    ]
    assert created


@FIRST
def test_who_did_not_ask_keeps_the_accelerator_that_salus_does_not_serve(sandbox, salus_bin, first):
    place = sandbox.directory / "tmp" / f"salus-{os.geteuid()}"
    place.mkdir(mode=0o700)
    daemon = Daemon(sandbox, salus_bin)
    daemon.socket = place / "salus.sock"
    daemon.start()
    try:
        said, created = run_job(sandbox, first)
    finally:
        daemon.stop()
    assert "backends cpu cuda salus" in said
    assert "default is ours False" in said
    assert created


def test_the_vendor_has_its_backend_where_salus_is_not_used(shared_daemon, sandbox):
    script = "import jax; jax.devices()"
    created = sandbox.directory / "created"
    env = sandbox.environment(
        PYTHONPATH=str(PACKAGES),
        VENDOR_CREATED=str(created),
        VENDOR_PLATFORM="other",
        JAX_PLATFORMS="other",
        SALUS_SOCKET=str(shared_daemon.socket),
    )
    run(sandbox, [*python("-c"), script], env).ok()
    assert created.read_text() == "created\n"
