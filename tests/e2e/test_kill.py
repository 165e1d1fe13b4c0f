"""Killed at any moment: jobs, the daemon, the device host. Nothing is left behind."""

import os
import random
import signal
import time

import pytest

from harness import EXAMPLES, SCRIPTS, Job, command_of, descendants, python, run, wait_for

VICTIM = SCRIPTS / "bad" / "victim.py"

# How long a dead job's session may be seen. A second is promised; CI's cores are busy.
GONE_SECONDS = 10.0


def start(sandbox, daemon, mode):
    job = Job(sandbox, python(VICTIM, mode), sandbox.salus(daemon.socket))
    job.wait_for_line("ready")
    return job


def assert_idle_and_empty(daemon):
    wait_for(lambda: not daemon.sessions(), "no session is left", GONE_SECONDS)
    wait_for(
        lambda: daemon.ps()["device"]["resident_bytes"] == 0,
        "the device's memory is free again",
        GONE_SECONDS,
    )


def test_killed_jobs_leave_nothing_and_disturb_nobody(daemon, sandbox, run_direct):
    expected = run_direct(EXAMPLES / "cnn.py", "--steps", "60").ok().stdout
    seed = int(os.environ.get("SALUS_SEED", random.randrange(1 << 32)))
    print(f"SALUS_SEED={seed}")
    moments = random.Random(seed)

    command = python(EXAMPLES / "cnn.py", "--steps", "60")
    other = Job(sandbox, command, sandbox.salus(daemon.socket))
    for mode in ("compile", "steps", "dispatch", "transfer", "hold"):
        for _ in range(2):
            victim = start(sandbox, daemon, mode)
            # Not a wait for anything: the moment of death is to be a different one each time.
            time.sleep(moments.uniform(0.0, 0.5))
            victim.kill()
            wait_for(
                lambda pid=victim.pid: daemon.session_of(pid) is None,
                f"the session of a job killed in `{mode}` is gone",
                GONE_SECONDS,
            )
    assert other.result().ok().stdout == expected
    assert_idle_and_empty(daemon)


def test_memory_of_a_killed_job_is_free_again(daemon, sandbox):
    victim = start(sandbox, daemon, "hold")
    wait_for(
        lambda: daemon.session_of(victim.pid)["resident_bytes"] >= 32 * (4 << 20),
        "the session holds memory",
    )
    # One report: small arrays come and go between two.
    report = daemon.ps()
    assert report["device"]["resident_bytes"] == report["sessions"][0]["resident_bytes"]
    victim.kill()
    assert_idle_and_empty(daemon)


def test_job_killed_during_a_long_iteration(daemon, sandbox):
    victim = start(sandbox, daemon, "wait")
    wait_for(
        lambda: (daemon.session_of(victim.pid) or {}).get("state") == "running",
        "the long iteration runs",
    )
    victim.kill()
    # An iteration cannot be interrupted: it may end first, and then everything is gone.
    wait_for(lambda: not daemon.sessions(), "the session is gone after its iteration", 120.0)
    assert_idle_and_empty(daemon)


def test_killed_before_its_first_word(daemon, sandbox):
    """Killed between the connect and the first program, at moments spread over the start."""
    env = sandbox.salus(daemon.socket)
    for milliseconds in range(0, 2000, 250):
        job = Job(sandbox, python(SCRIPTS / "bad" / "first_use.py"), env)
        time.sleep(milliseconds / 1000)
        job.kill()
    assert_idle_and_empty(daemon)
    run(sandbox, python(SCRIPTS / "bad" / "first_use.py"), env).ok()


@pytest.mark.parametrize("mode", ["steps", "compile", "wait"])
def test_killed_daemon_leaves_nothing(make_daemon, sandbox, mode):
    daemon = make_daemon()
    job = start(sandbox, daemon, mode)
    daemon.kill()
    # Prompt, and not after the iteration that runs: nobody is there to use its result.
    wait_for(
        lambda: not (set(sandbox.processes()) - {job.pid}),
        "device host and compilers ended with their supervisor",
        GONE_SECONDS,
    )
    job.result(seconds=60.0).failed_with_exception()

    again = make_daemon()
    assert again.socket == daemon.socket
    run(sandbox, python(SCRIPTS / "scan.py"), sandbox.salus(again.socket)).ok()


def device_host(daemon):
    """The supervisor's child that has the vendor's plugin loaded and serves the jobs."""
    hosts = [pid for pid in descendants(daemon.process.pid) if "host" in command_of(pid)]
    commands = [command_of(pid) for pid in descendants(daemon.process.pid)]
    assert len(hosts) == 1, f"no single device host among {commands}"
    return hosts[0]


@pytest.mark.parametrize("mode", ["steps", "dispatch"])
def test_killed_device_host_is_replaced(daemon, sandbox, mode):
    job = start(sandbox, daemon, mode)
    host = device_host(daemon)
    os.kill(host, signal.SIGKILL)
    job.result(seconds=60.0).failed_with_exception()
    assert daemon.process.poll() is None, "the supervisor ended too"

    wait_for(
        lambda: daemon.ps()["device"].get("state", "up") == "up" and device_host(daemon) != host,
        "there is a new device host",
    )
    run(sandbox, python(SCRIPTS / "scan.py"), sandbox.salus(daemon.socket)).ok()
    assert_idle_and_empty(daemon)


def test_killed_compiler_is_replaced(daemon, sandbox):
    """A compiler that dies costs at most the program it was compiling."""
    job = start(sandbox, daemon, "compile")
    host = device_host(daemon)
    compilers = [pid for pid in descendants(daemon.process.pid) if pid != host]
    assert compilers, "there are no compiler processes"
    for pid in compilers:
        os.kill(pid, signal.SIGKILL)
    job.kill()
    run(sandbox, python(SCRIPTS / "scan.py"), sandbox.salus(daemon.socket)).ok()
    assert daemon.process.poll() is None
    assert_idle_and_empty(daemon)
