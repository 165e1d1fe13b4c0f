"""`jax.profiler.trace` has the device's time: one event per launch of the job, and no other's."""

import json

from harness import SCRIPTS, Job, python

SCRIPT = SCRIPTS / "profiler" / "launches.py"


def planes_of(result) -> dict:
    return json.loads(result.ok().stdout.splitlines()[-1])


def salus_lines(planes) -> dict:
    ours = {name: lines for name, lines in planes.items() if "salus" in name}
    assert list(ours) == ["/device:CUSTOM:salus:0 (cpu)"], list(planes)
    return ours["/device:CUSTOM:salus:0 (cpu)"]


def test_launches_are_in_the_profile_at_their_time(daemon, sandbox):
    jobs = [
        Job(sandbox, python(SCRIPT, launches, before), sandbox.salus(daemon.socket))
        for launches, before in [(7, 3), (12, 1)]
    ]
    for job, expected in zip(jobs, [7, 12], strict=True):
        planes = planes_of(job.result())
        lines = salus_lines(planes)
        assert all(name.startswith("lane ") for name in lines), list(lines)
        host = [event for line in planes["/host:CPU"].values() for event in line]
        asked = min(start for name, start, *_ in host if "PjitFunction(turn)" in name)
        # A job hears of the end of a launch before it is noted: an earlier one may reach in.
        events = [e for line in lines.values() for e in line if e[1] >= asked]
        assert len(events) == expected, events
        assert {name for name, *_ in events} == {"jit_turn"}
        # One after another.
        end = asked
        for _, start, duration, stats in sorted(events, key=lambda event: event[1]):
            assert start >= end - 1000, (start, end)
            assert duration > 0 and stats["waited_us"] >= 0
            end = start + duration


def test_a_profile_of_nothing_has_no_launches(shared_daemon, run_salus):
    planes = planes_of(run_salus("profiler/launches.py", "0", "0", daemon=shared_daemon))
    names = [name for line in salus_lines(planes).values() for name, *_ in line]
    assert "jit_turn" not in names, names
