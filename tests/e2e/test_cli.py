"""What a person types: `salus run`, `ps`, `doctor`, `stop`."""

import json
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from harness import EXAMPLES, SCRIPTS, Daemon, Job, python, run, wait_for

FIRST_USE = SCRIPTS / "bad" / "first_use.py"
VICTIM = SCRIPTS / "bad" / "victim.py"

DEVICE_KEYS = {"platform", "kind", "capacity_bytes", "resident_bytes", "peak_bytes", "lanes"}
SESSION_KEYS = {
    "id",
    "name",
    "pid",
    "user",
    "state",
    "iterations",
    "device_time_ms",
    "waiting_ms",
    "resident_bytes",
    "paged_bytes",
    "scratch_bytes",
}


def idle_after(sandbox, seconds) -> dict[str, str]:
    """An environment in which a daemon that `salus run` starts goes away after so long."""
    config = sandbox.directory / "salus.toml"
    config.write_text(f"schema_version = 1\n[service]\nidle_exit_seconds = {seconds}\n")
    return sandbox.environment(SALUS_CONFIG=str(config))


def test_run_starts_a_daemon_that_goes_away(sandbox, salus_bin):
    # Long enough for a Python under load to import JAX.
    env = idle_after(sandbox, seconds=15)
    result = run(sandbox, [salus_bin, "run", "--", *python(FIRST_USE)], env).ok()
    assert "RAN on cpu 6.0" in result.stdout
    assert "salus" in result.stderr and "start" in result.stderr, result.text()
    wait_for(lambda: not sandbox.processes(), "the daemon went away")

    # And another one comes when it is needed again.
    again = run(sandbox, [salus_bin, "run", "--", *python(FIRST_USE)], env).ok()
    assert again.stdout == result.stdout
    run(sandbox, [salus_bin, "stop"], env).ok()
    sandbox.assert_nothing_left()


def test_a_service_waits_for_the_job_that_it_was_started_for(sandbox, salus_bin):
    env = idle_after(sandbox, seconds=1)
    # Reads its data for longer than the idle time before it uses JAX: until the service would be
    # gone, which here is the time after which another one without a job did go.
    script = f"""
import os, subprocess, time
other = dict(os.environ, TMPDIR=os.environ["TMPDIR"] + "/other")
os.mkdir(other["TMPDIR"])
del other["SALUS_SOCKET"]
subprocess.run([{str(salus_bin)!r}, "run", "--", "true"], env=other, check=True)
deadline = time.monotonic() + 60
while os.path.exists(other["TMPDIR"] + f"/salus-{{os.geteuid()}}/salus.sock"):
    assert time.monotonic() < deadline, "the other service stays"
    time.sleep(0.05)
import jax
print(float(jax.numpy.ones(3).sum()))
"""
    result = run(sandbox, [salus_bin, "run", "--", sys.executable, "-c", script], env).ok()
    assert result.stdout.endswith("3.0\n"), result.text()
    wait_for(lambda: not sandbox.processes(), "the daemon went away")


def test_two_runs_share_the_daemon_that_the_first_started(sandbox, salus_bin):
    env = idle_after(sandbox, seconds=600)
    command = [salus_bin, "run", "--", *python(EXAMPLES / "mlp.py", "--steps", "20")]
    jobs = [Job(sandbox, command, env) for _ in range(2)]
    first, second = (job.result().ok() for job in jobs)
    assert first.stdout == second.stdout
    run(sandbox, [salus_bin, "stop"], env).ok()
    sandbox.assert_nothing_left()


def test_run_uses_the_daemon_that_is_there(daemon, sandbox, salus_bin):
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket))
    command = [salus_bin, "run", "--name", "mine", "--", *python(VICTIM, "hold")]
    job = Job(sandbox, command, env)
    job.wait_for_line("ready")
    (session,) = daemon.sessions()
    assert session["name"] == "mine"
    assert job.stderr == "", "nothing was started, so there is nothing to say"
    job.kill()


def test_run_passes_on_how_the_command_ended(daemon, sandbox, salus_bin):
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket))
    ended = run(sandbox, [salus_bin, "run", "--", sys.executable, "-c", "exit(7)"], env)
    assert ended.code == 7
    missing = run(sandbox, [salus_bin, "run", "--", "no-such-command"], env)
    assert missing.code != 0 and "no-such-command" in missing.stderr


NO_SESSION = "opened no session"


@pytest.mark.parametrize(
    "script, why",
    [
        ("print('RAN')", "it asked JAX for no device"),
        ("import jax; print('RAN')", "it asked JAX for no device"),
        (
            "import jax; jax.config.update('jax_platforms', 'cpu'); print('RAN', jax.devices())",
            "it chose `cpu` itself",
        ),
        (
            "import os; os.environ['JAX_PLATFORMS'] = 'cpu'\n"
            "import jax; print('RAN', jax.devices())",
            "it chose `cpu` itself",
        ),
        (
            "import numpyro; numpyro.set_platform('cpu'); import jax; print('RAN', jax.devices())",
            "it chose `cpu` itself",
        ),
    ],
)
def test_run_says_when_its_command_opened_no_session(daemon, sandbox, salus_bin, script, why):
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket))
    ended = f"{script}; exit(3)"
    command = [salus_bin, "run", "--name", "mine", "--", sys.executable, "-c", ended]
    result = run(sandbox, command, env)
    assert result.code == 3 and result.stdout.startswith("RAN"), result.text()
    (line,) = (line for line in result.stderr.splitlines() if NO_SESSION in line)
    assert line.startswith(f"salus: `mine` {NO_SESSION}: {why}"), result.text()


def test_run_says_nothing_where_a_session_was_opened(daemon, sandbox, salus_bin):
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket))
    # Also if a process of the command's opened it, and if that one is a `salus run`, too.
    inner = f"{salus_bin} run -- {sys.executable} {FIRST_USE}; echo done"
    for command in (python(FIRST_USE), ["sh", "-c", inner]):
        result = run(sandbox, [salus_bin, "run", "--", *command], env).ok()
        assert "RAN on cpu 6.0" in result.stdout
        assert NO_SESSION not in result.stderr, result.text()


def python_without_salus(sandbox) -> dict[str, str]:
    """The same packages without ours, for the Python that this environment was made of."""
    site = sandbox.directory / "site"
    site.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("salus", "__pycache__")):
            (site / path.name).symlink_to(path)
    return {"PYTHONPATH": str(site), "VIRTUAL_ENV": ""}


def test_run_with_a_python_that_lacks_the_package(daemon, sandbox, salus_bin):
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket)) | python_without_salus(sandbox)
    interpreter = getattr(sys, "_base_executable", sys.executable)
    check = "import importlib.util as u; assert u.find_spec('jax') and not u.find_spec('salus')"
    run(sandbox, [interpreter, "-c", check], env).ok()

    script = (
        "import jax, jax.numpy as jnp; from jax._src import xla_bridge\n"
        "assert 'salus' in xla_bridge.backends()\n"
        "print('RAN', jnp.linalg.cholesky(4 * jnp.eye(2)).sum())"
    )
    result = run(sandbox, [salus_bin, "run", "--", interpreter, "-c", script], env).ok()
    assert result.stdout == "RAN 4.0\n"
    assert result.stderr == "", result.text()


def test_ps(daemon, sandbox):
    empty = daemon.ps()
    assert empty["device"].keys() >= DEVICE_KEYS
    assert empty["device"]["platform"] == "cpu"
    assert empty["device"]["lanes"] >= 1
    assert empty["sessions"] == []

    job = Job(sandbox, python(VICTIM, "steps"), sandbox.salus(daemon.socket))
    job.wait_for_line("ready")
    wait_for(lambda: daemon.session_of(job.pid)["iterations"] > 10, "iterations are counted")
    session = daemon.session_of(job.pid)
    assert session.keys() >= SESSION_KEYS
    assert session["pid"] == job.pid
    assert session["device_time_ms"] > 0
    assert session["resident_bytes"] > 0
    assert "victim.py" in session["name"], session["name"]

    table = daemon.command("ps").ok().stdout
    assert str(job.pid) in table and session["name"] in table, table
    job.kill()


def test_serve_prints_the_numbers_of_ps(make_daemon):
    options = ["--policy", "srtf", "--memory", "1536MiB", "--host-memory", "300MiB"]
    daemon = make_daemon(options=options)
    said = next(line for line in daemon.log_text().splitlines() if " serves cpu " in line)
    assert ": 1 lane, srtf, 1.5 GiB, and 300.0 MiB of host memory for pages, at " in said
    shown = daemon.command("ps").ok().stdout.splitlines()[0]
    assert ": 1 lane, srtf, 0 B of 1.5 GiB in use" in shown
    assert shown.endswith("0 B of 300.0 MiB paged out")


def test_the_default_memory_leaves_room_for_the_machine(daemon):
    available = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) << 10
    device = daemon.ps()["device"]
    taken = device["capacity_bytes"] + device["ledger"]["host_room_bytes"]
    # What is available changes while others work; all of the machine's memory it never is.
    total = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) << 10
    assert 0 < taken <= max(0.9 * total, available)


def test_a_name_drives_no_terminal_and_forges_no_line(daemon, sandbox):
    name = "tr\x1b[2Jain\x9b31m\n2026-01-01T00:00:00Z info  all is well"
    shown = "tr\\u{1b}[2Jain\\u{9b}31m\\n2026-01-01T00:00:00Z info  all is well"
    env = sandbox.salus(daemon.socket) | {"SALUS_NAME": name}
    job = Job(sandbox, python(VICTIM, "hold"), env)
    job.wait_for_line("ready")
    session = daemon.session_of(job.pid)
    assert session["name"] == shown
    explained = daemon.command("explain", str(session["id"])).ok().stdout
    listed = daemon.command("ps").ok().stdout
    daemon.command("job", str(session["id"]), "pause").ok()
    log = daemon.log.read_text(errors="replace")
    assert shown in explained and shown in log and shown[:24] in listed
    for text in (explained, listed, log):
        assert not any(c < " " and c != "\n" or "\x7f" <= c <= "\x9f" for c in text), text
        assert "\n2026-01-01" not in text
    job.kill()


def test_ps_without_a_daemon(sandbox, salus_bin):
    path = str(sandbox.directory / "missing.sock")
    result = run(sandbox, [salus_bin, "ps"], sandbox.environment(SALUS_SOCKET=path))
    assert result.code != 0
    assert path in result.stderr and "salus serve" in result.stderr, result.text()


def test_doctor(sandbox, salus_bin, daemon):
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket))
    result = run(sandbox, [salus_bin, "doctor"], env).ok()
    assert "xla_cpu_pjrt" in result.stdout and str(daemon.socket) in result.stdout, result.text()


def test_doctor_tries_the_device(sandbox, salus_bin):
    command = [salus_bin, "doctor", "--device", "cpu", "--try", "--python", sys.executable]
    result = run(sandbox, [*command, "-o", "json"], sandbox.environment()).ok()
    report = json.loads(result.stdout)
    tried = {check["check"]: check for check in report["checks"]}
    names = ("pool", "transfers", "program", "linear algebra", "callback", "an error")
    for name in (*names, "out of memory", "job 1", "job 2", "eviction"):
        assert tried[name]["state"] == "ok", tried[name]
    assert report["ready"]


def test_doctor_without_a_daemon_says_what_to_do(sandbox, salus_bin):
    result = run(sandbox, [salus_bin, "doctor"], sandbox.environment())
    assert "salus" in result.stdout and result.code in (0, 1), result.text()
    assert "salus run" in result.stdout or "salus serve" in result.stdout, result.text()


def test_stop(daemon, sandbox, salus_bin):
    daemon.command("stop").ok()
    wait_for(lambda: daemon.process.poll() is not None, "the daemon ended")
    sandbox.assert_nothing_left()
    assert not daemon.socket.exists()
    again = daemon.command("stop")
    assert again.code != 0 and str(daemon.socket) in again.stderr, again.text()


def test_a_second_daemon_on_the_same_socket_is_refused(daemon, sandbox, salus_bin):
    command = [salus_bin, "serve", "--socket", daemon.socket, "--device", "cpu"]
    second = run(sandbox, command, sandbox.environment())
    assert second.code != 0 and str(daemon.socket) in second.stderr, second.text()
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()


# ---------------------------------------------------------------- jobs that did not ask


WHERE = (
    "import jax; from jax._src import xla_bridge\n"
    "print(sorted(xla_bridge.backends()), jax.numpy.arange(3.0).sum())"
)


def test_plain_jax_is_undisturbed_where_no_daemon_runs(sandbox):
    result = run(sandbox, [sys.executable, "-c", WHERE], sandbox.environment()).ok()
    assert result.stdout == "['cpu'] 3.0\n"
    assert result.stderr == "", result.text()


def test_plain_jax_is_undisturbed_where_other_platforms_are_named(daemon, sandbox):
    env = sandbox.environment(JAX_PLATFORMS="cpu", SALUS_SOCKET=str(daemon.socket))
    result = run(sandbox, [sys.executable, "-c", WHERE], env).ok()
    assert result.stdout == "['cpu'] 3.0\n"
    assert daemon.sessions() == []


def test_a_daemon_at_the_usual_place_is_used(sandbox, salus_bin):
    place = sandbox.directory / "tmp" / f"salus-{os.geteuid()}"
    place.mkdir(mode=0o700)
    daemon = Daemon(sandbox, salus_bin)
    daemon.socket = place / "salus.sock"
    daemon.start()
    try:
        result = run(sandbox, [sys.executable, "-c", WHERE], sandbox.environment()).ok()
        assert result.stdout == "['cpu', 'salus'] 3.0\n"
        assert result.stderr == "", result.text()
    finally:
        daemon.stop()
    shutil.rmtree(place)


def test_json_is_stable_for_scripts(daemon):
    text = daemon.command("ps", "-o", "json").ok().stdout
    assert json.loads(text)["device"]["capacity_bytes"] > 0
