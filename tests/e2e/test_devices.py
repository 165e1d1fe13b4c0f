"""Several devices of a machine: a device host each, on the stand-in for CUDA with two of them."""

import json
import os
import signal

import pytest
import standin

from harness import SCRIPTS, Job, python, run, wait_for

LOOP = SCRIPTS / "policies" / "loop.py"
SHORT = ("--size", 64, "--steps", 400)
NAMES = ["cuda:0", "cuda:1"]


@pytest.fixture
def two(make_standin):
    """A service with all devices of its plugin, and what the stand-in counts."""
    config = "schema_version = 1\n[compilers]\ntune = false\n"
    return make_standin(devices=2, memory="1GiB", config=config)


def names(daemon):
    return [device["name"] for device in daemon.ps()["devices"]]


def start(sandbox, daemon, *args, device=None):
    named = {} if device is None else {"SALUS_DEVICE": device}
    job = Job(sandbox, python(LOOP, *args), sandbox.salus(daemon.socket) | named)
    job.wait_for_line("ready")
    return job


def test_eight_jobs_share_two_devices(two, sandbox):
    daemon, state = two
    assert names(daemon) == NAMES
    jobs = [Job(sandbox, python(LOOP), sandbox.salus(daemon.socket)) for _ in range(8)]
    for job in jobs:
        job.wait_for_line("ready")
    report = daemon.ps()
    placed = [session["device"] for session in report["sessions"]]
    assert [placed.count(name) for name in NAMES] == [4, 4], placed
    held = [0, 0]
    for session in report["sessions"]:
        held[NAMES.index(session["device"])] += session["resident_bytes"]
    assert min(held) >= 0.9 * max(held) > 0, held
    for device in range(2):
        assert state.device(standin.LAUNCHES, device) > 0
        # Each device is one process's, and nobody compiles on it.
        clients = {place[standin.PID] for place in state.places(device)}
        assert clients == {report["devices"][device]["device_host_pid"]}

    table = daemon.command("ps").ok().stdout
    assert "\ncuda:1 (" in table and "  DEVICE  " in table, table
    trace = json.loads(daemon.command("trace", "-o", "-").ok().stdout)
    groups = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    for name in NAMES:
        assert f"jobs on {name}" in groups and f"pages on {name}" in groups, groups
    for job in jobs:
        job.kill()


def test_the_death_of_one_device_host_leaves_the_others_jobs_alone(two, sandbox):
    daemon, _ = two
    expected = run(sandbox, python(LOOP, *SHORT), sandbox.direct()).ok().stdout
    before = [device["device_host_pid"] for device in daemon.ps()["devices"]]
    victim = start(sandbox, daemon, device="cuda:1")
    stays = start(sandbox, daemon, *SHORT, device="cuda:0")
    os.kill(before[1], signal.SIGKILL)
    lost = victim.result().failed_with_exception()
    assert "the device host ended" in lost.stderr, lost.text()
    assert stays.result().ok().stdout == expected

    def is_back():
        second = daemon.ps()["devices"][1]
        return second["restarts"] == 1 and second["state"] == "up"

    wait_for(is_back, "the second device is open again")
    first, second = daemon.ps()["devices"]
    assert (first["device_host_pid"], first["restarts"]) == (before[0], 0)
    assert second["device_host_pid"] != before[1]
    again = sandbox.salus(daemon.socket) | {"SALUS_DEVICE": "cuda:1"}
    assert run(sandbox, python(LOOP, *SHORT), again).ok().stdout == expected


def test_a_job_gets_the_device_that_it_names(two, sandbox, salus_bin):
    daemon, state = two
    jobs = [start(sandbox, daemon, "--size", 64, device="cuda:1") for _ in range(2)]
    assert [session["device"] for session in daemon.sessions()] == ["cuda:1"] * 2
    assert state.device(standin.LAUNCHES, 0) == 0
    for job in jobs:
        job.kill()
    command = [salus_bin, "run", "--socket", daemon.socket, "--device", "cuda:0", "--"]
    env = sandbox.environment()
    run(sandbox, command + python(LOOP, "--size", 64, "--steps", 5), env).ok()
    assert state.device(standin.LAUNCHES, 0) > 0
    wrong = run(sandbox, [*command[:-2], "cuda:5", "--", *python(LOOP)], env)
    assert wrong.code == 1
    assert "this service has no device `cuda:5`; it has cuda:0, cuda:1" in wrong.stderr


def test_some_of_the_devices_and_a_policy_of_one(make_daemon, sandbox):
    env = standin.environment(sandbox, devices=3, memory="1GiB")
    some = ",".join(f"{standin.library()}:{index}" for index in (2, 0))
    daemon = make_daemon(device=some, env=env)
    state = standin.state_of(sandbox)
    assert names(daemon) == ["cuda:2", "cuda:0"]
    assert state.places(1) == [], "a device that was not named is not opened"
    daemon.command("policy", "set", "srtf", "--device", "cuda:0").ok()
    assert [device["policy"] for device in daemon.ps()["devices"]] == ["fair", "srtf"]
