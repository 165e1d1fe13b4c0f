"""A second user on one service: he computes, and sees, signals and reads nothing of the first.

Two real uids without names of their own. The service is the first one's, as it would be where
several people use a machine. Only root can start processes as somebody else.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from harness import HERE, SCRIPTS, Daemon, Job, Sandbox, descendants, run, salus_binary, wait_for

ANNA, BERT, STRANGER = 20001, 20002, 20003

# Gives a user the interpreter, and nothing else, of a directory that is not his to enter: many have
# Python in root's own. In a mount namespace of its own, so that nobody else sees it.
REVEAL = """set -e
keep=$(mktemp -d); mount --bind "$1" "$keep"
mount -t tmpfs -o mode=755 none "$0"; mkdir -p "$1"; mount --bind "$keep" "$1"
umount "$keep"; rmdir "$keep"; shift; exec "$@" """


def as_user(uid: int) -> list[str]:
    """A prefix for a command that is to be this user's."""
    switch = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
    interpreter = Path(sys.base_prefix).resolve()
    parents = [interpreter, *interpreter.parents][::-1]
    shut = next((p for p in parents if not p.stat().st_mode & stat.S_IXOTH), None)
    if shut is None:
        return switch
    return ["unshare", "--mount", "sh", "-c", REVEAL, str(shut), str(interpreter), *switch]


@pytest.fixture(scope="module")
def two_users():
    if os.geteuid() != 0:
        pytest.skip("only root can start processes as another user")
    missing = [tool for tool in ("setpriv", "unshare", "mount") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"these are missing: {', '.join(missing)}")
    importing = [*as_user(BERT), sys.executable, "-c", "import jax, salus"]
    tried = subprocess.run(importing, capture_output=True, text=True, cwd="/")
    binary = subprocess.run([*as_user(BERT), salus_binary(), "--version"], capture_output=True)
    if tried.returncode or binary.returncode:
        pytest.skip(f"another user cannot use this Python or `salus`: {tried.stderr[-300:]}")


class Person(Sandbox):
    """A user, with a home that only he may enter."""

    def __init__(self, base: Path, uid: int):
        super().__init__(base / str(uid))
        self.uid = uid
        for path in (self.directory, self.directory / "tmp"):
            os.chown(path, uid, uid)
            path.chmod(0o700)

    def start(self, command: list, socket_path, **env: str) -> Job:
        job_env = self.salus(socket_path) | env
        return Job(self, [*as_user(self.uid), *command], job_env)

    def script(self, socket_path, name: str, *args, **env: str) -> Job:
        return self.start([sys.executable, self.directory.parent / name, *args], socket_path, **env)

    def salus_command(self, socket_path, *args):
        return self.start([salus_binary(), *args], socket_path).result()


SECRET = """import signal, sys, jax, jax.numpy as jnp
def step(w): return jnp.tanh(w @ w) * 0.5
step.__name__ = step.__qualname__ = sys.argv[1]
step, w = jax.jit(step), jnp.eye(64)
for _ in range(20): float(step(w)[0, 0])
print("ready", flush=True)
signal.pause()
"""


class Place:
    """Anna, Bert, and a service of Anna's in a directory that both can enter."""

    def __init__(self, base: Path):
        self.base = base
        base.chmod(0o755)
        self.anna, self.bert = Person(base, ANNA), Person(base, BERT)
        self.stranger = Person(base, STRANGER)
        (base / "secret.py").write_text(SECRET)
        for script in (SCRIPTS / "neighbours" / "rounds.py", HERE / "wire.py"):
            shutil.copy(script, base)
        for script in (SCRIPTS / "users").glob("*.py"):
            shutil.copy(script, base)
        self.daemon = None

    def serve(self, allow_users: str, device: str = "cpu") -> Daemon:
        run_dir = self.base / "run"
        run_dir.mkdir()
        os.chown(run_dir, ANNA, ANNA)
        config = f"schema_version = 1\n[service]\nallow_users = {allow_users}\n"
        daemon = Daemon(
            self.anna, salus_binary(), device=device, config=config, prefix=as_user(ANNA)
        )
        daemon.socket = run_dir / "salus.sock"
        self.daemon = daemon
        return daemon.start()

    def close(self) -> None:
        try:
            if self.daemon:
                self.daemon.stop()
        finally:
            for person in (self.anna, self.bert, self.stranger):
                person.assert_nothing_left()


@pytest.fixture
def place(two_users):
    base = Path(tempfile.mkdtemp(prefix="salus-users-"))
    place = Place(base)
    yield place
    try:
        place.close()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def test_the_jobs_of_two_users_side_by_side(place, sandbox):
    daemon = place.serve(f'["{BERT}"]')
    socket = daemon.socket
    # One round of it, because the file that would end it is there.
    script = [place.base / "rounds.py", 1, "/"]
    direct = Job(sandbox, [sys.executable, *script], sandbox.direct())
    theirs = place.anna.script(socket, "secret.py", "anna_step", SALUS_NAME="a-secret-name")
    own = place.bert.script(socket, "secret.py", "bert_step", SALUS_NAME="berts-own-name")
    # Started as any other, Bert's job computes what it would compute without the service.
    command = [salus_binary(), "run", "--socket", socket, "--", sys.executable, *script]
    found = place.bert.start(command, socket).result().ok().stdout
    assert found == direct.result().ok().stdout
    theirs.wait_for_line("ready")
    own.wait_for_line("ready")

    what_is_seen(place, socket, theirs, own)
    what_is_refused(place, socket, theirs, own)
    what_is_shut(place, theirs)
    assert theirs.process.poll() is None and own.process.poll() is None


def what_is_seen(place, socket, theirs, own):
    """Of others: that they are there, whose they are, what they hold and how long they ran."""
    report = json.loads(place.bert.salus_command(socket, "ps", "-o", "json").ok().stdout)
    of_anna, of_bert = sorted(report["sessions"], key=lambda session: session["user"])
    assert (of_bert["name"], of_bert["pid"]) == ("berts-own-name", own.pid)
    assert (of_anna["name"], of_anna["pid"]) == (None, None)
    assert of_anna["user"] == str(ANNA) and of_anna["iterations"] >= 20
    assert of_anna["resident_bytes"] > 0 and of_anna["device_time_ms"] > 0
    table = place.bert.salus_command(socket, "ps").ok().stdout
    assert "berts-own-name" in table and "secret" not in table and str(ANNA) in table

    trace = place.bert.salus_command(socket, "trace", "-o", "-").ok().stdout
    assert f"a job of {ANNA}" in trace and "berts-own-name" in trace
    assert "bert_step" in trace, "his own program has its name"
    for secret in ("a-secret-name", "anna_step"):
        assert secret not in trace, "Bert sees what Anna calls her job or her program"
    # Those who rule the service see all of it: Anna, whose it is, and root.
    everything = place.anna.salus_command(socket, "ps", "-o", "json").ok().stdout
    assert "a-secret-name" in everything and "berts-own-name" in everything
    trace = place.anna.salus_command(socket, "trace", "-o", "-").ok().stdout
    assert "a-secret-name" in trace and "anna_step" in trace and "bert_step" in trace
    assert "a-secret-name" in place.daemon.command("ps").ok().stdout


def what_is_refused(place, socket, theirs, own):
    session = place.daemon.session_of(theirs.pid)["id"]
    for change in (
        ["pause"],
        ["kill"],
        ["kill", "--now", "--yes"],
        ["weight", "9"],
        ["priority", "high"],
        ["deadline", "1ms"],
        ["memory-max", "1MiB"],
    ):
        refused = place.bert.salus_command(socket, "job", session, *change)
        assert refused.code != 0, change
        assert f"session {session} of {ANNA} is not {BERT}'s" in refused.stderr, refused.text()
    for command in (["policy", "set", "fifo"], ["stop"]):
        refused = place.bert.salus_command(socket, *command)
        assert refused.code != 0 and f"only {ANNA} and root may" in refused.stderr, refused.text()
    unknown = place.bert.salus_command(socket, "job", "a-secret-name", "pause")
    assert unknown.code != 0 and "no session has" in unknown.stderr
    # His own session is his, but ending it at once would cost Anna hers.
    his = place.daemon.session_of(own.pid)["id"]
    place.bert.salus_command(socket, "job", his, "weight", "3").ok()
    refused = place.bert.salus_command(socket, "job", his, "kill", "--now", "--yes")
    assert refused.code != 0 and "sessions of other users would be lost" in refused.stderr


def what_is_shut(place, theirs):
    """Files and processes: by the kernel's word."""
    service = place.daemon.process.pid
    processes = [theirs.pid, service, *descendants(service)]
    assert len(processes) >= 4, "a job, a supervisor, a device host and a compiler"
    files = [p for p in place.anna.directory.rglob("*") if p.suffix not in (".out", ".err")]
    assert any("cache" in str(p) for p in files)
    command = [*map(str, processes), "--", *map(str, files)]
    shown = place.bert.script(place.daemon.socket, "looks_around.py", *command).result().ok().stdout
    attempts, successes = shown.splitlines()
    assert int(attempts) > 6 * len(processes)
    assert successes == "[]", successes


def test_a_lost_session_tells_nothing_of_other_users(place):
    daemon = place.serve(f'["{BERT}"]', device="scripted")
    victim = place.bert.script(daemon.socket, "raw.py", daemon.socket, "victim")
    victim.wait_for_line("ready")
    culprit = place.anna.script(daemon.socket, "raw.py", daemon.socket, "culprit")
    fate = victim.result().ok().stdout
    assert f"while it ran a program of session 2 of {ANNA}, which is refused" in fate, fate
    assert "crashes" not in fate and "culprit" not in fate
    assert "this job's program `crashes`" in culprit.result().ok().stdout
    wait_for(lambda: daemon.ps()["device"]["platform"], "there is a new device host")
    report = json.loads(place.bert.salus_command(daemon.socket, "ps", "-o", "json").ok().stdout)
    (convicted,) = report["service"]["convicted"]
    assert convicted["name"] is None and convicted["session"] == f"session 2 of {ANNA}"
    table = place.bert.salus_command(daemon.socket, "ps").ok().stdout
    assert f"ended the device host (signal 6 (SIGABRT)) for session 2 of {ANNA}" in table


def test_a_stranger_is_told_so_and_holds_nobody_up(place):
    """Whoever is not in `allow_users` may still connect, and send what takes long to close."""
    daemon = place.serve(f'["{BERT}"]', device="scripted")
    refused = place.stranger.salus_command(daemon.socket, "ps")
    assert refused.code != 0 and f"not open to {STRANGER}" in refused.stderr, refused.text()
    lingers = place.stranger.script(daemon.socket, "lingers.py", daemon.socket)
    lingers.wait_for_line("ready")
    began = time.monotonic()
    for _ in range(4):
        daemon.command("ps").ok()
    took = time.monotonic() - began
    print(f"4 `salus ps` beside a stranger's lingering descriptors: {took:.2f} s")
    assert took < 30.0
    lingers.kill()


def test_by_default_a_service_is_its_owners_alone(place):
    place.base.joinpath("run").mkdir()
    os.chown(place.base / "run", ANNA, ANNA)
    daemon = Daemon(place.anna, salus_binary(), device="scripted", prefix=as_user(ANNA))
    daemon.socket = place.base / "run" / "salus.sock"
    place.daemon = daemon
    daemon.start()
    refused = place.bert.salus_command(daemon.socket, "ps")
    assert refused.code != 0 and "you may not connect" in refused.stderr, refused.text()
    job = place.bert.script(daemon.socket, "rounds.py", 1, "/").result().failed_with_exception()
    assert "ermission" in job.stderr, job.text()
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o600
    run(place.anna, [salus_binary(), "ps"], place.anna.salus(daemon.socket)).ok()
