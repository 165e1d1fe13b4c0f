"""`salus trace record` writes down what a service runs, and `salus sim` replays it."""

import json

from harness import SCRIPTS, Job, python, wait_for

LOOP = SCRIPTS / "policies" / "loop.py"


def record(daemon, sandbox, path, *options):
    """A recorder that has begun to follow the service."""
    env = sandbox.environment(SALUS_SOCKET=str(daemon.socket))
    recorder = Job(sandbox, [daemon.binary, "trace", "record", path, *options], env)
    wait_for(lambda: path.exists() and path.stat().st_size > 0, "the recording has begun")
    return recorder


def test_a_run_is_recorded_and_replayed(make_daemon, sandbox):
    daemon = make_daemon(options=["--policy", "srtf"])
    path = sandbox.directory / "run.jsonl"
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(LOOP, "--size", 64), env) for _ in range(2)]
    for job in jobs:
        job.wait_for_line("ready")
    recorder = record(daemon, sandbox, path, "--until-idle")
    Job(sandbox, python(LOOP, "--size", 64, "--steps", 50), env).result().ok()
    for job in jobs:
        job.kill()
    recorder.result().ok()

    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["salus_recording"] == 1
    assert header["policy"] == "srtf"
    assert [*lines[-1]] == ["end"]
    assert lines[-1]["end"]["lost_records"] == 0
    opened = [line["opened"]["session"] for line in lines if "opened" in line]
    assert len(opened) == len(set(opened)) == 3
    iterations = [line["iteration"] for line in lines if "iteration" in line]
    # One step before it is ready, and 50.
    assert sum(one["session"] == max(opened) for one in iterations) >= 51

    replayed = json.loads(daemon.command("sim", path, "-o", "json").ok().stdout)
    (run,) = replayed["runs"]
    assert len(run["jobs"]) == 3
    assert run["unfinished"] == 0
    assert all(job["iterations"] == job["replayed_iterations"] for job in run["jobs"])

    cut = sandbox.directory / "cut.jsonl"
    text = path.read_text()
    cut.write_text(text[: text.rindex("\n", 0, len(text) - 1) - 3])
    refused = daemon.command("sim", cut)
    assert refused.code == 2
    last = len(cut.read_text().splitlines())
    assert f"cut.jsonl, line {last}" in refused.stderr, refused.stderr
    assert "the recording is cut off here" in refused.stderr
    daemon.command("sim", cut, "--partial").ok()
