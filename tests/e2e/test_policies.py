"""Who runs next: the policies with real jobs, and changing them while they run."""

import json

import pytest
from harness import SCRIPTS, Job, python, run, wait_for

LOOP = SCRIPTS / "policies" / "loop.py"
HOLDER = SCRIPTS / "memory" / "holder.py"


def start(sandbox, daemon, *options, **terms):
    """A loop with these terms, as `salus run` would set them."""
    variables = {f"SALUS_{name.upper()}": str(value) for name, value in terms.items()}
    env = {**sandbox.salus(daemon.socket), **variables}
    return Job(sandbox, python(LOOP, *options), env)


def session(daemon, job):
    return wait_for(lambda: daemon.session_of(job.pid), f"the session of {job.pid}")


def device_times(daemon, jobs):
    by_pid = {s["pid"]: s["device_time_ms"] for s in daemon.sessions()}
    return [by_pid[job.pid] for job in jobs]


def shares_after(daemon, jobs, milliseconds):
    """Each job's part of the next so many milliseconds of device time."""
    before = device_times(daemon, jobs)

    def enough():
        used = [b - a for a, b in zip(before, device_times(daemon, jobs))]
        return used if sum(used) >= milliseconds else None

    used = wait_for(enough, f"{milliseconds} ms of device time")
    return [time / sum(used) for time in used]


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 2, 1)])
def test_fair_shares_follow_the_weights(make_daemon, sandbox, weights):
    daemon = make_daemon(options=["--policy", "fair"])
    # Iterations of different lengths: shares are of time, not of turns.
    sizes = (512, 640, 384)
    jobs = [start(sandbox, daemon, "--size", s, weight=w) for s, w in zip(sizes, weights)]
    for job in jobs:
        job.wait_for_line("ready")
    shares = shares_after(daemon, jobs, 3000)
    for share, weight in zip(shares, weights):
        assert abs(share - weight / sum(weights)) < 0.03, (shares, weights)
    # And they follow when a weight is changed.
    daemon.command("job", str(session(daemon, jobs[0])["id"]), "weight", "2").ok()
    changed = (2, *weights[1:])
    shares = shares_after(daemon, jobs, 3000)
    for share, weight in zip(shares, changed):
        assert abs(share - weight / sum(changed)) < 0.03, (shares, changed)


def test_a_higher_class_runs_at_the_next_boundary(make_daemon, sandbox):
    alone = run(sandbox, python(LOOP, "--steps", 3000), sandbox.direct()).ok().stdout
    daemon = make_daemon(options=["--policy", "priority"])
    long = start(sandbox, daemon, "--steps", 3000)
    long.wait_for_line("ready")
    short = start(sandbox, daemon, "--steps", 400, "--size", 256, "--read-every", 1, priority="high")

    def both():
        by_pid = {s["pid"]: s for s in daemon.sessions()}
        high, low = by_pid.get(short.pid), by_pid[long.pid]
        return high and high["iterations"] > 100 and (high, low)

    high, low = wait_for(both, "the short one runs beside the long one")
    assert (high["priority"], low["priority"]) == ("high", "normal")
    # It waited for at most one iteration of the other at each boundary.
    iteration = low["device_time_ms"] / low["iterations"]
    assert high["times"]["turn_ms"] / high["iterations"] <= 1.5 * iteration
    short.result().ok()
    assert long.result().ok().stdout == alone


def test_a_paused_job_stands_still_gives_its_memory_and_goes_on(make_daemon, sandbox):
    options = ("--mib", 60, "--scratch-mib", 20, "--steps", 2000)
    daemon = make_daemon(options=["--memory", "128MiB"])
    job = Job(sandbox, python(HOLDER, *options), sandbox.salus(daemon.socket))
    job.wait_for_line("ready")
    number = str(session(daemon, job)["id"])
    daemon.command("job", number, "pause").ok()
    wait_for(lambda: daemon.session_of(job.pid)["state"] == "paused", "it is paused")
    before = daemon.session_of(job.pid)["iterations"]
    assert "it is paused" in daemon.command("explain", number).stdout
    # Another takes its room, and it still does nothing.
    small = ("--mib", 70, "--scratch-mib", 20, "--steps", 5)
    run(sandbox, python(HOLDER, *small), sandbox.salus(daemon.socket)).ok()
    paused = daemon.session_of(job.pid)
    assert paused["iterations"] == before
    assert paused["paged_bytes"] > 0, "its memory may leave"
    daemon.command("job", number, "resume").ok()
    wait_for(lambda: daemon.session_of(job.pid)["iterations"] > before, "it goes on")
    job.kill()


def test_the_bits_do_not_depend_on_pauses_and_policies(make_daemon, sandbox):
    alone = run(sandbox, python(LOOP, "--steps", 400), sandbox.direct()).ok().stdout
    daemon = make_daemon(options=["--policy", "fair"])
    jobs = [start(sandbox, daemon, "--steps", 400) for _ in range(3)]
    for job in jobs:
        job.wait_for_line("ready")
    for policy in ("srtf", "pack", "las", "fifo", "deadline", "priority", "exclusive", "pack"):
        daemon.command("policy", "set", policy).ok()
        assert daemon.ps()["device"]["policy"] == policy
        for job in jobs:
            open_now = daemon.session_of(job.pid)
            if open_now:
                daemon.command("job", str(open_now["id"]), "pause")
                daemon.command("job", str(open_now["id"]), "resume")
    for job in jobs:
        assert job.result().ok().stdout == alone


def test_one_job_until_it_ends(make_daemon, sandbox):
    daemon = make_daemon(options=["--policy", "exclusive"])
    first = start(sandbox, daemon)
    first.wait_for_line("ready")
    second = start(sandbox, daemon, "--steps", 20)
    waiting = wait_for(
        lambda: (s := daemon.session_of(second.pid)) and s["state"] == "waiting" and s,
        "the second waits",
    )
    assert waiting["iterations"] == 0
    explained = daemon.command("explain", str(waiting["id"])).ok().stdout
    assert "session 1 has the device until it ends" in explained, explained
    first.kill()
    second.result().ok()


def test_a_job_is_ended_from_outside(daemon, sandbox):
    job, other = start(sandbox, daemon), start(sandbox, daemon, "--steps", 50)
    job.wait_for_line("ready")
    daemon.command("job", str(session(daemon, job)["id"]), "kill").ok()
    ended = job.result()
    assert ended.code != 0
    assert "ended with `salus job`" in ended.stderr, ended.text()
    other.result().ok()
    wait_for(lambda: not daemon.sessions(), "both are gone")


def test_what_earlier_runs_took_is_remembered(daemon, sandbox):
    first = start(sandbox, daemon, "--steps", 60)
    first.result().ok()
    second = start(sandbox, daemon)
    second.wait_for_line("ready")
    expected = wait_for(lambda: session(daemon, second)["remaining_ms"] is not None, "an estimate")
    assert expected
    second.kill()
    third = start(sandbox, daemon, iterations=10_000)
    third.wait_for_line("ready")
    wait_for(
        lambda: (session(daemon, third)["remaining_ms"] or 0) > 3000, "an estimate by iterations"
    )
    third.kill()


def test_an_account_adds_up(daemon, sandbox):
    jobs = [start(sandbox, daemon) for _ in range(2)]
    for job in jobs:
        job.wait_for_line("ready")
    one = session(daemon, jobs[0])
    wait_for(lambda: session(daemon, jobs[0])["iterations"] > one["iterations"] + 50, "it runs")
    shown = json.loads(daemon.command("explain", str(one["id"]), "-o", "json").ok().stdout)
    times = shown["times"]
    assert times["running_ms"] == pytest.approx(shown["device_time_ms"], rel=0.1)
    assert times["turn_ms"] > 0
    assert times["compile_ms"] > 0
    text = daemon.command("explain", str(one["id"])).ok().stdout
    assert "the device worked for it" in text
    assert "others were before it, by the policy" in text
    for job in jobs:
        job.kill()


@pytest.mark.parametrize(
    "command, said",
    [
        (("policy", "set", "fairr"), "there are exclusive, fifo, srtf"),
        (("job", "1", "weight", "0"), "a weight of 0 would never run"),
        (("job", "1", "deadline", "0ms"), "a time from now is due"),
        (("job", "1", "deadline", "-5ms"), "a time from now is due"),
        (("job", "1", "priority", "urgent"), "`high`, `normal` or `low` is due"),
        (("serve", "--policy", "best"), "there are exclusive, fifo, srtf"),
    ],
)
def test_a_wrong_wish_is_refused_and_changes_nothing(daemon, sandbox, command, said):
    job = start(sandbox, daemon, "--steps", 200)
    job.wait_for_line("ready")
    refused = daemon.command(*command)
    assert refused.code == 2, refused.text()
    assert said in refused.stderr, refused.text()
    assert daemon.ps()["device"]["policy"] == "fair"
    assert session(daemon, job)["weight"] == 1
    gone = daemon.command("job", "77", "pause")
    assert gone.code == 1
    assert "no session has the number or the name `77`" in gone.stderr
    job.result().ok()
