"""Nothing that a job does hurts another: programs that crash, hang or look around, and floods.

Each test is a finding of an attack on the service, or a row of docs/reliability.md.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import time

import pytest

import wire
from harness import (
    SCRIPTS,
    Job,
    command_of,
    descendants,
    python,
    run,
    salus_library,
    wait_for,
)

NEIGHBOURS = SCRIPTS / "neighbours"
FIRST_USE = SCRIPTS / "bad" / "first_use.py"


def device_host(daemon) -> int:
    return daemon.ps()["service"]["device_host_pid"]


def compilers(daemon) -> list[int]:
    return [p for p in descendants(daemon.process.pid) if "compiler" in command_of(p)]


# ---------------------------------------------------------------- programs


@pytest.fixture
def neighbours(sandbox):
    """`neighbours(daemon)` has two jobs train beside a test; at its end their bits are right."""
    stop, seeds, started = sandbox.directory / "stop", (1, 2), []

    def rounds(seed, until, env):
        return Job(sandbox, python(NEIGHBOURS / "rounds.py", seed, until), env)

    def start(daemon):
        # Without the service, and one round: a file that is there.
        direct = [rounds(seed, NEIGHBOURS / "rounds.py", sandbox.direct()) for seed in seeds]
        env = sandbox.salus(daemon.socket)
        started.extend(zip(direct, [rounds(seed, stop, env) for seed in seeds], strict=True))
        for _, job in started:
            job.wait_for_line("ready")

    yield start
    stop.touch()
    for direct, job in started:
        undisturbed = direct.result().ok().stdout
        assert job.result().ok().stdout == undisturbed, "a neighbour's bits have changed"


def test_programs_that_cannot_be_run_safely(daemon, sandbox, neighbours):
    neighbours(daemon)
    host = device_host(daemon)
    command = python(NEIGHBOURS / "hostile.py", salus_library())
    shown = run(sandbox, command, sandbox.salus(daemon.socket)).ok().stdout
    found = {name: rest for name, *rest in (line.split("|", 2) for line in shown.splitlines())}
    for name in ("sort by <=", "sort by a NaN", "sort by true"):
        assert found.pop(name) == ["ran", "all are there"], shown
    reasons = {
        "bounded size": "known only when it runs",
        "absent replica": "names replica 1",
        "infeed": "would wait forever",
        "outfeed": "would wait forever",
        "top of too few": "do not fit its operand",
        "top of rows that are not there": "do not fit its operand",
        "top into too few rows": "do not fit its operand",
    }
    assert found.keys() == reasons.keys()
    for name, reason in reasons.items():
        outcome, why = found[name]
        assert outcome == "refused" and reason in why and "hint: " in why, found[name]
    assert device_host(daemon) == host, "a program ended the device host"


CRASHES = "name: crashes; outputs: f32[4]; fail: crash"
RUNS = "name: runs; outputs: f32[4]; ms: 1"


def lose(session, program: int, code: str) -> None:
    """Runs a program that ends the device host."""
    assert session.compile(program, code) is None
    session.launch(1, program, 100)
    session.until_over()


def test_a_program_that_ends_the_device_host_is_refused_from_then_on(make_daemon, sandbox):
    daemon = make_daemon(device="scripted")
    began = time.monotonic()
    with (
        wire.Session(daemon.socket, "victim.py").welcome() as victim,
        wire.Session(daemon.socket, "culprit.py").welcome() as culprit,
    ):
        assert victim.compile(1, RUNS) is None
        lose(culprit, 7, CRASHES)
        victim.until_over()
        wait_for(lambda: daemon.ps()["device"]["platform"], "there is a new device host")
        print(f"open again after {time.monotonic() - began:.2f} s")
        (convicted,) = daemon.ps()["service"]["convicted"]
        assert convicted["name"] == "crashes" and "culprit.py" in convicted["session"]
        assert convicted["how"] == "signal 6 (SIGABRT)"
        # Each of the two hears why, the log has it, and so has the table.
        own = wire.fate(daemon.socket, culprit.session)
        assert "this job's program `crashes`, which is refused" in own
        other = wire.fate(daemon.socket, victim.session)
        assert "the program `crashes` of session 2 (`culprit.py`" in other
    assert "it ended while it ran the program `crashes` of session 2" in daemon.log_text()
    shown = daemon.command("ps").ok().stdout
    assert "refused: the program `crashes` ended the device host (signal 6 (SIGABRT))" in shown

    with wire.Session(daemon.socket, "again.py").welcome() as again:
        why = again.compile(8, CRASHES)
        assert "`crashes` is refused, because it ended the device host" in why, why
        assert "session 2 of" in why and "hint: " in why, why
        assert again.compile(9, RUNS) is None, "another program is not"
        assert again.compile(10, CRASHES + "; ms: 2") is None, "nor is one that differs"

    # The services after this one know it, too.
    daemon.stop()
    later = make_daemon(device="scripted")
    with wire.Session(later.socket).welcome() as session:
        assert "`crashes` is refused" in session.compile(1, CRASHES)
    kept = sandbox.directory / "cache" / "convicted.json"
    assert kept.stat().st_mode & 0o077 == 0, "others can read what jobs are called"


@pytest.mark.parametrize("sent", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_signal_from_outside_convicts_nobody(daemon, sandbox, sent):
    victim = Job(
        sandbox, python(SCRIPTS / "bad" / "victim.py", "wait"), sandbox.salus(daemon.socket)
    )
    victim.wait_for_line("ready")
    wait_for(
        lambda: (daemon.session_of(victim.pid) or {}).get("state") == "running",
        "its program runs",
    )
    os.kill(device_host(daemon), sent)
    result = victim.result(seconds=60.0).failed_with_exception()
    assert f"signal {sent.value} ({sent.name})" in result.stderr, result.text()
    if sent != signal.SIGKILL:
        assert f"sent by process {os.getpid()}" in result.stderr, result.text()
    wait_for(lambda: daemon.ps()["device"]["platform"], "there is a new device host")
    assert daemon.ps()["service"]["convicted"] == []


# ---------------------------------------------------------------- iterations without end


def start_endless(daemon, sandbox, *others):
    """A job whose iteration never ends, and others that wait for it."""
    env = sandbox.salus(daemon.socket)
    waiting = [
        Job(sandbox, python(NEIGHBOURS / "steps.py"), env | {"SALUS_NAME": o}) for o in others
    ]
    for job in waiting:
        job.wait_for_line("ready")
    endless = Job(sandbox, python(NEIGHBOURS / "endless.py"), env)
    endless.wait_for_line("ready")
    return endless, waiting


def test_an_endless_iteration_is_named_and_can_be_ended(make_daemon, sandbox):
    config = "schema_version = 1\n[limits]\nfirst_iteration_seconds = 1\n"
    daemon = make_daemon(config=config)
    endless, (waiting,) = start_endless(daemon, sandbox, "waits.py")

    def overdue():
        session = daemon.session_of(endless.pid)
        return session and session["overdue_ms"] and session

    session = wait_for(overdue, "`salus ps` says that it is overdue")
    id = session["id"]
    named = re.compile(r"runs for \d+\.\d s, its program's first time")
    assert session["overdue_ms"] > 1000 and named.search(session["why"]), session
    assert f"session {id}: an iteration of it runs for" in daemon.command("ps").ok().stdout
    wait_for(lambda: named.search(daemon.log_text()), "the log names it")

    def explained():
        text = daemon.command("explain", "waits.py").ok().stdout
        return f"session {id} runs, whose iteration runs for" in text and text

    text = wait_for(explained, "whoever waits is told for whom")
    assert f"`salus job {id} kill --now` ends it" in text

    # What it costs is said first, and nothing is done.
    refused = daemon.command("job", id, "kill", "--now")
    assert refused.code != 0 and "`waits.py`" in refused.stderr, refused.text()
    assert re.search(r"\d+ iterations, .* of device time", refused.stderr), refused.text()
    assert "--yes" in refused.stderr
    assert daemon.session_of(waiting.pid), "nothing was to be done"

    began = time.monotonic()
    daemon.command("job", id, "kill", "--now", "--yes").ok()
    for job in (endless, waiting):
        result = job.result(seconds=60.0).failed_with_exception()
        assert f"`salus job {id} kill --now`" in result.stderr, result.text()
    wait_for(lambda: daemon.ps()["device"]["platform"], "there is a new device host")
    print(f"jobs told and device open again after {time.monotonic() - began:.2f} s")
    assert daemon.ps()["service"]["convicted"] == [], "nothing has crashed"
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()


def test_a_limit_on_iterations_ends_what_nobody_watches(make_daemon, sandbox):
    daemon = make_daemon(config="schema_version = 1\n[limits]\niteration_seconds = 2\n")
    endless, (waiting,) = start_endless(daemon, sandbox, "waits.py")
    for job in (endless, waiting):
        result = job.result(seconds=60.0).failed_with_exception()
        assert "`[limits] iteration_seconds` allows" in result.stderr, result.text()
    wait_for(lambda: daemon.ps()["device"]["platform"], "there is a new device host")
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()


# ---------------------------------------------------------------- compilers


def nested_loops(depth: int, name: str) -> str:
    """The vendor's compiler takes longer with each level: 80 take about a second, 200 twenty."""
    types = "(tensor<f32>, tensor<f32>) -> tensor<i1>"
    text = "%r0 = stablehlo.add %i0, %i0 : tensor<f32>\nstablehlo.return %r0 : tensor<f32>"
    for n in range(1, depth + 1):
        inner = n - 1
        text = f"""%r{n} = stablehlo.while(%i{inner} = %i{n}) : tensor<f32>
          cond {{
            %c{n} = stablehlo.compare LT, %i{inner}, %i{inner} : {types}
            stablehlo.return %c{n} : tensor<i1>
          }} do {{
            {text}
          }}
          stablehlo.return %r{n} : tensor<f32>"""
    text = "return".join(text.rsplit("stablehlo.return", 1))
    main = f"func.func public @main(%i{depth}: tensor<f32>) -> tensor<f32>"
    return f"module @{name} {{ {main} {{ {text} }} }}"


def test_slow_compilations_of_one_job_lock_nobody_out(make_daemon, sandbox):
    config = "schema_version = 1\n[limits]\ncompile_seconds = 4\n[compilers]\ncount = 1\n"
    daemon = make_daemon(config=config)
    with wire.Session(daemon.socket, "hog.py").welcome() as hog:
        offset = 0
        for number in range(6):
            offset = hog.ask_to_compile(number, nested_loops(200, f"slow{number}"), offset)
        wait_for(
            lambda: [s["state"] for s in daemon.sessions()] == ["compiling"], "the hog compiles"
        )
        began = time.monotonic()
        run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()
        print(f"a newcomer's first program beside six slow ones: {time.monotonic() - began:.2f} s")
        kind, body = hog.receive()
        assert kind == wire.COMPILE_FAILED
        _, why = wire.refusal(body[8:])
        assert "was not compiled within 4 s" in why and "compile_seconds" in why, why
    # What nobody waits for is not compiled to its end, nor begun.
    wait_for(lambda: not daemon.sessions(), "its session is gone")
    began = time.monotonic()
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()
    print(f"and after it has gone: {time.monotonic() - began:.2f} s")


def test_a_compiler_that_was_killed_while_idle_costs_no_program(daemon, sandbox):
    """The one that is started ahead of the first program."""
    with wire.Session(daemon.socket).welcome() as session:
        for pid in wait_for(lambda: compilers(daemon), "there is a compiler"):
            os.kill(pid, signal.SIGKILL)
        # No wait: the device host may not know yet.
        assert session.compile(1, nested_loops(1, "one")) is None


def test_the_kernel_ends_compilers_first(daemon):
    """When the machine has no memory left: a compilation can be tried again."""

    def score(pid):
        with open(f"/proc/{pid}/oom_score_adj") as adjustment:
            return int(adjustment.read())

    (compiler, *_) = wait_for(lambda: compilers(daemon), "there is a compiler")
    wait_for(lambda: score(compiler) > score(device_host(daemon)), "it is to go first")
    assert score(device_host(daemon)) == score(daemon.process.pid) == score(os.getpid())


# ---------------------------------------------------------------- floods


@contextlib.contextmanager
def descriptors(count: int):
    """Lets this process have `count` descriptors open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{count} open files are needed here, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_sessions(stack, daemon, count: int) -> tuple[int, list[str]]:
    """How many were opened, and why others were not."""
    refused = []
    for _ in range(count):
        session = stack.enter_context(wire.Session(daemon.socket))
        # One after the other: more than a few that wait at once are refused for that.
        kind, body = session.receive()
        if kind == wire.REFUSED:
            refused.append(wire.refusal(body)[1])
    return count - len(refused), refused


@pytest.mark.parametrize("hard, fit", [(4096, 600), (1024, 223)])
def test_sessions_are_bounded_by_descriptors(make_daemon, sandbox, hard, fit):
    if not shutil.which("prlimit"):
        pytest.skip("no `prlimit` here: a low limit of open files cannot be set")
    daemon = make_daemon(device="scripted", prefix=["prlimit", f"--nofile=1024:{hard}"])
    host = device_host(daemon)
    with descriptors(4096), contextlib.ExitStack() as stack:
        first = stack.enter_context(wire.Session(daemon.socket, "first.py").welcome())
        opened, refused = open_sessions(stack, daemon, 600)
        assert opened == fit, refused[:1]
        for why in refused:
            assert "224 sessions are open, and 224 is the limit" in why, why
        assert first.compile(1, RUNS) is None, "the first one goes on"
    assert device_host(daemon) == host, "the device host has ended"
    wait_for(lambda: not daemon.sessions(), "all are gone")


def test_a_report_of_two_thousand_sessions(make_daemon, sandbox):
    daemon = make_daemon(device="scripted")
    with descriptors(8192), contextlib.ExitStack() as stack:
        began = time.monotonic()
        opened, refused = open_sessions(stack, daemon, 2000)
        print(f"{opened} sessions in {time.monotonic() - began:.2f} s")
        if refused:
            pytest.skip(f"no 2,000 sessions can be opened here: {refused[0]}")
        began = time.monotonic()
        assert len(daemon.sessions()) == 2000
        print(f"`salus ps` of them in {time.monotonic() - began:.2f} s")
        table = daemon.command("ps").ok().stdout
        assert table.count("\n") == 2000 + 2, table[:1000]
    wait_for(lambda: not daemon.sessions(), "all are gone")


def test_a_job_cannot_fill_the_log(make_daemon, sandbox):
    """Two lines for each session that comes and goes: at most 240 lines a minute."""
    daemon = make_daemon(device="scripted")
    before = len(daemon.log.read_bytes())
    for _ in range(400):
        with wire.Session(daemon.socket, "x" * 1000).welcome():
            pass
    wait_for(lambda: not daemon.sessions(), "all are gone")
    text = daemon.log.read_text()
    assert "more of these are not shown for a minute" in text
    # A minute may have passed, and with it a second quota.
    assert len(text) - before < 2 * 241 * 250, len(text) - before


# ---------------------------------------------------------------- the machine


def test_a_job_that_execs_has_no_session(daemon, sandbox):
    """What replaces a job's program inherits nothing of its session."""
    script = sandbox.directory / "execs.py"
    script.write_text(
        "import os, jax, jax.numpy as jnp\n"
        "float(jnp.ones(3).sum())\n"
        "print('ready', flush=True)\n"
        "os.execvp('sleep', ['sleep', '600'])\n"
    )
    job = Job(sandbox, python(script), sandbox.salus(daemon.socket))
    job.wait_for_line("ready")
    wait_for(lambda: daemon.session_of(job.pid) is None, "its session is gone")
    assert "sleep" in command_of(job.pid)
    job.kill()


def test_a_cache_that_cannot_be_written(make_daemon, sandbox):
    """A file where the directory should be: no user can write there, root neither."""
    cache = sandbox.directory / "cache"
    cache.write_text("this is no directory")
    daemon = make_daemon()
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()
    assert str(cache) in daemon.log_text()
    report = daemon.ps()
    assert report["device"]["cache"]["compiled"] > 0 and report["service"]["restarts"] == 0


def test_a_clock_that_jumps(make_daemon, sandbox):
    """Files of the cache from years ahead and long ago: what is dated by the clock decides nothing
    but what is thrown away first."""
    daemon = make_daemon()
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()
    daemon.stop()
    files = [p for p in (sandbox.directory / "cache").rglob("*") if p.is_file()]
    assert files
    for n, path in enumerate(files):
        when = 4_000_000_000 if n % 2 else 1
        os.utime(path, (when, when))
    again = make_daemon()
    run(sandbox, python(FIRST_USE), sandbox.salus(again.socket)).ok()
    cache = again.ps()["device"]["cache"]
    assert cache["compiled"] == 0 and cache["found_on_disk"] > 0, json.dumps(cache)
