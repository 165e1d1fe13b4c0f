"""Functions of a job that its programs call: what they do to their own job, and not to others.

That every kind of callback has the output of JAX's own CPU backend is `test_jax_cpu_standard.py`.
"""

import pytest

from harness import SCRIPTS, Job, python, run, wait_for

CALLBACKS = SCRIPTS / "callbacks"


def start(sandbox, daemon, script, *args):
    return Job(sandbox, python(CALLBACKS / script, *args), sandbox.salus(daemon.socket))


def job(sandbox, daemon, script, *args):
    return start(sandbox, daemon, script, *args).result()


def other_job(sandbox, daemon):
    """A job that computes in the lane of the one that waits."""
    loop = SCRIPTS / "policies" / "loop.py"
    return run(sandbox, python(loop, "--steps", 20), sandbox.salus(daemon.socket))


def test_others_go_on_while_a_callback_waits(daemon, sandbox):
    go = sandbox.directory / "go"
    waits = start(sandbox, daemon, "waits.py", go)
    waits.wait_for_line("waits")
    session = wait_for(lambda: daemon.session_of(waits.pid), "its session")
    assert session["state"] == "callback"
    other_job(sandbox, daemon).ok()
    assert daemon.session_of(waits.pid)["state"] == "callback"
    explained = daemon.command("explain", str(session["id"])).ok().stdout
    assert "waits for a callback that its own process runs" in explained, explained
    go.touch()
    shown = waits.result().ok().stdout
    assert shown == "ready\nwaits\nreturned 16512.0\ngoes on 128.0\n", shown


def test_the_time_of_a_callback_is_not_device_time(daemon, sandbox):
    go = sandbox.directory / "go"
    waits = start(sandbox, daemon, "waits.py", go)
    waits.wait_for_line("waits")
    times = wait_for(
        lambda: (s := daemon.session_of(waits.pid)) and s["times"]["callback_ms"] > 500 and s,
        "it waited for half a second",
    )
    assert times["device_time_ms"] < times["times"]["callback_ms"]
    go.touch()
    waits.result().ok()


def test_a_job_that_dies_in_a_callback_takes_nobody_with_it(daemon, sandbox):
    waits = start(sandbox, daemon, "waits.py", sandbox.directory / "never")
    waits.wait_for_line("waits")
    host = daemon.ps()["device"]
    waits.kill()
    wait_for(lambda: not daemon.sessions(), "its session has ended")
    device = daemon.ps()["device"]
    assert device["resident_bytes"] == 0 and host["state"] == device["state"] == "up"
    other_job(sandbox, daemon).ok()


def test_a_session_is_ended_while_it_waits_for_a_callback(daemon, sandbox):
    waits = start(sandbox, daemon, "waits.py", sandbox.directory / "never", 1)
    waits.wait_for_line("waits")
    session = wait_for(lambda: daemon.session_of(waits.pid), "its session")
    daemon.command("job", str(session["id"]), "kill").ok()
    wait_for(lambda: not daemon.sessions(), "its session has ended")
    ended = waits.result()
    assert "ended with `salus job`" in ended.stdout + ended.stderr, ended.text()


def test_a_callback_that_never_returns_ends_its_own_launch(make_daemon, sandbox):
    daemon = make_daemon(config="schema_version = 1\n[limits]\ncallback_seconds = 1\n")
    go = sandbox.directory / "go"
    waits = start(sandbox, daemon, "waits.py", go)
    waits.wait_for_line("failed")
    shown = waits.stdout
    assert "DEADLINE_EXCEEDED: a callback of this job did not return within 1 s" in shown, shown
    other_job(sandbox, daemon).ok()
    go.touch()
    assert waits.result().ok().stdout.endswith("goes on 128.0\n")


@pytest.mark.parametrize("policy", ["fair", "pack"])
def test_callbacks_use_the_device_themselves(make_daemon, sandbox, policy):
    daemon = make_daemon(options=["--policy", policy])
    cpu = sandbox.cpu()
    expected = run(sandbox, python(CALLBACKS / "nested.py"), cpu).ok().stdout
    result = job(sandbox, daemon, "nested.py").ok()
    assert result.stdout == expected, result.text()


def test_jobs_share_a_program_and_not_its_functions(daemon, sandbox):
    for number in (2, 3):
        shown = job(sandbox, daemon, "same_program.py", number).ok().stdout
        assert shown == f"[0.0, {number}.0, {2 * number}.0]\n", shown
    cache = daemon.ps()["device"]["cache"]
    assert cache["found_loaded"] > 0, "the second job's program was not the first one's"


def test_an_exception_is_the_jobs_error_with_its_own_traceback(daemon, sandbox):
    shown = job(sandbox, daemon, "raises.py").ok().stdout
    assert shown == "True True\nValueError: the loss is 1.0\n3.0\n", shown
