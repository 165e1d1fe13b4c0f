"""Who runs next: the policies with real jobs, and changing them while they run."""

import json
import time

import pytest

from decisions import Requests, fair_contradiction, iterations
from harness import DEADLINE_SECONDS, SCRIPTS, Job, python, run, wait_for

LOOP = SCRIPTS / "policies" / "loop.py"
HOLDER = SCRIPTS / "memory" / "holder.py"


def start(sandbox, daemon, *options, **terms):
    """A loop with these terms, as `salus run` would set them."""
    variables = {f"SALUS_{name.upper()}": str(value) for name, value in terms.items()}
    env = {**sandbox.salus(daemon.socket), **variables}
    return Job(sandbox, python(LOOP, *options), env)


def session(daemon, job):
    return wait_for(lambda: daemon.session_of(job.pid), f"the session of {job.pid}")


def by_job(daemon, jobs, values):
    """The values by the jobs' sessions."""
    return {session(daemon, job)["id"]: value for job, value in zip(jobs, values)}


def assert_fair(daemon, weights, since=0):
    """The engine's choices follow these weights. Returns when the last of them was.

    Waits until they would contradict every other: each weight a quarter larger than it is.
    """
    others = [{**weights, number: 1.25 * weight} for number, weight in weights.items()]

    def telling():
        found = iterations(daemon)
        return all(fair_contradiction(found, other, since) for other in others) and found

    found = wait_for(telling, f"choices that tell {weights} from other weights", DEADLINE_SECONDS)
    assert fair_contradiction(found, weights, since) is None
    return found[-1].handed


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 2, 1)])
def test_fair_shares_follow_the_weights(make_daemon, sandbox, weights):
    daemon = make_daemon(options=["--policy", "fair"])
    # Iterations of different lengths: shares are of time, not of turns.
    sizes = (512, 640, 384)
    jobs = [
        start(sandbox, daemon, "--size", size, "--read-every", 0, weight=weight)
        for size, weight in zip(sizes, weights)
    ]
    for job in jobs:
        job.wait_for_line("ready")
    assert_fair(daemon, by_job(daemon, jobs, weights))
    # And they follow when a weight is changed.
    daemon.command("job", str(session(daemon, jobs[0])["id"]), "weight", "2").ok()
    changed = iterations(daemon)[-1].handed
    assert_fair(daemon, by_job(daemon, jobs, (2, *weights[1:])), since=changed)
    for job in jobs:
        job.kill()


def test_a_higher_class_runs_at_the_next_boundary(make_daemon, sandbox):
    daemon = make_daemon(options=["--policy", "priority"])
    long = start(sandbox, daemon)
    long.wait_for_line("ready")
    short = start(
        sandbox, daemon, "--steps", 400, "--size", 256, "--read-every", 1, priority="high"
    )
    high, low = session(daemon, short), session(daemon, long)
    assert (high["priority"], low["priority"]) == ("high", "normal")
    short.result().ok()
    found = iterations(daemon)
    long.kill()
    of_high, of_low = Requests(found, high["id"]), Requests(found, low["id"])
    opened = of_high.all[0].ready
    assert not [i for i in of_low.all if of_high.waits_at(i.handed)], "it was passed over"
    # Nor was anything handed over early that would then be before it.
    waits = [of_low.in_flight_at(i.ready) for i in of_high.all if i.ready > opened]
    assert max(map(len, waits)) <= 1, "it waited for more than one iteration"
    assert any(waits), "it never met the other"


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
    job = start(sandbox, daemon)
    job.wait_for_line("ready")
    number = str(session(daemon, job)["id"])

    def explain():
        """The session as it is shown, and between which times that was."""
        before = time.monotonic()
        shown = json.loads(daemon.command("explain", number, "-o", "json").ok().stdout)
        return shown, before, time.monotonic()

    first, asked, answered = explain()
    wait_for(lambda: session(daemon, job)["iterations"] > first["iterations"] + 50, "it runs")
    # Alone, it ran whenever the device worked. Of an iteration that still runs, only one of the two
    # times has its part.
    daemon.command("job", number, "pause").ok()
    wait_for(lambda: session(daemon, job)["state"] == "paused", "nothing of it runs")
    alone = session(daemon, job)
    assert alone["times"]["running_ms"] == pytest.approx(alone["device_time_ms"], abs=0.001)
    assert alone["times"]["compile_ms"] > 0
    daemon.command("job", number, "resume").ok()

    other = start(sandbox, daemon)
    wait_for(lambda: session(daemon, job)["times"]["turn_ms"] > 0, "it waits for the other")
    text = daemon.command("explain", number).ok().stdout
    assert "the device worked for it" in text
    assert "others were before it, by the policy" in text
    # It was always in exactly one state, so the times have grown as the clock did.
    last, asked_again, answered_again = explain()
    grown = (sum(last["times"].values()) - sum(first["times"].values())) / 1000
    assert asked_again - answered <= grown <= answered_again - asked
    for each in (job, other):
        each.kill()


@pytest.mark.parametrize(
    "command, said",
    [
        (("policy", "set", "fairr"), "there are exclusive, fifo, srtf"),
        (("job", "1", "weight", "0"), "a weight of 0 would never run"),
        (("job", "1", "deadline", "0ms"), "expected a time such as 20ms"),
        (("job", "1", "deadline", "-5ms"), "expected a time such as 20ms"),
        (("job", "1", "priority", "urgent"), "expected `high`, `normal` or `low`, found `urgent`"),
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
