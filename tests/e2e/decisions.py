"""What the engine decided, read from `salus trace`: who was ready when another was chosen.

How much of the device each job gets depends on how often its processes are ready, and so on what
else the machine does. What the engine owes them does not: of those that are ready it takes the
right one. So tests look at each choice, and let the jobs be as late as they like.

Everything here is sound whatever the machine does: where the trace leaves a doubt (its times are
whole microseconds, and what an iteration was expected to take is not in it), a choice counts for
nothing or within the bounds of the doubt.
"""

from __future__ import annotations

import bisect
import itertools
import json
from dataclasses import dataclass

# The engine takes the median of this many of a program's last iterations for the next
# (estimates.rs).
REMEMBERED = 9


@dataclass(frozen=True)
class Iteration:
    """Times in microseconds from the trace's beginning."""

    session: int
    program: str
    ready: int
    handed: int
    began: int
    ended: int

    @property
    def took(self) -> int:
        return self.ended - self.began


def iterations(daemon) -> list[Iteration]:
    """What was handed to lane 0 and has ended, in the order in which it was handed over."""
    trace = json.loads(daemon.command("trace", "-o", "-").ok().stdout)["traceEvents"]
    tracks = [e for e in trace if e["name"] == "thread_name" and e["args"]["name"] == "lane 0"]
    found = []
    for event in trace:
        if event["ph"] == "X" and tracks and event["tid"] == tracks[0]["tid"]:
            args, began = event["args"], event["ts"]
            times = (args["ready_us"], args["handed_us"], began, began + event["dur"])
            if "still_runs" not in args:
                found.append(Iteration(args["session"], args["program"], *times))
    return sorted(found, key=lambda i: i.handed)


class Requests:
    """One session's iterations; a session has one request at a time, and they end in order."""

    def __init__(self, all_iterations: list[Iteration], session: int):
        self.all = [i for i in all_iterations if i.session == session]
        self.handed = [i.handed for i in self.all]
        self.ended = [i.ended for i in self.all]
        self.total = [0, *itertools.accumulate(i.took for i in self.all)]

    def waits_at(self, time: int) -> bool:
        """Whether a request was ready then, and was handed over later."""
        place = bisect.bisect_right(self.handed, time)
        return place < len(self.all) and self.all[place].ready < time

    def in_flight_at(self, time: int) -> list[Iteration]:
        """What was handed over and had not ended then."""
        first = bisect.bisect_right(self.ended, time)
        return self.all[first : bisect.bisect_right(self.handed, time)]

    def returns(self) -> list[int]:
        """When it was ready again after nothing of it was in flight."""
        gaps = (b.ready for a, b in itertools.pairwise(self.all) if a.ended <= b.ready)
        return [*(i.ready for i in self.all[:1]), *gaps]

    def device_time(self, choice: Iteration) -> tuple[int, int]:
        """Between which bounds the device time was that the engine knew of at the choice."""
        ended = bisect.bisect_right(self.ended, choice.handed)
        least = most = self.total[ended]
        for place in range(ended, bisect.bisect_right(self.handed, choice.handed)):
            i = self.all[place]
            if i is choice:
                continue
            # It counts as what was expected of it: the median of the last, of which the very last
            # may have ended too late. Or not at all, if it was handed over at the same time.
            same = [b.took for b in self.all[max(0, place - 30) : place] if b.program == i.program]
            last = same[-REMEMBERED - 1 :]
            certain = len(last) > REMEMBERED and i.handed < choice.handed
            least, most = least + (min(last) if certain else 0), most + max(last, default=0)
        return least, most


def fair_contradiction(all_iterations, weights: dict[int, float], since: int = 0) -> str | None:
    """Why the engine's choices cannot have followed these weights under `fair`, or `None`."""
    requests = {session: Requests(all_iterations, session) for session in weights}
    for pair in itertools.combinations(sorted(weights), 2):
        chosen = [i for i in all_iterations if i.session in pair and i.handed > since]
        if why := _contradiction(chosen, pair, requests, weights):
            return f"with weights {weights}: {why}"
    return None


def _contradiction(chosen, pair, requests, weights) -> str | None:
    """Between two sessions, the one further behind in device time ÷ weight is to be chosen.

    How far apart they were at first is not known, but it stays the same until one of them was away:
    then the engine may let go of what it owed. So between two such moments, whenever the first was
    chosen, its lead over the second was no larger than whenever the second was.
    """
    first, second = (requests[session] for session in pair)
    returns = [first.returns(), second.returns()]
    leads: dict[tuple, tuple[list, list]] = {}
    for choice in chosen:
        other = second if choice.session == pair[0] else first
        if not other.waits_at(choice.handed):
            continue
        stretch = tuple(bisect.bisect_right(times, choice.handed) for times in returns)
        of_first, of_second = leads.setdefault(stretch, ([], []))
        (least, most), (other_least, other_most) = (
            [time / weights[session] for time in requests[session].device_time(choice)]
            for session in pair
        )
        if choice.session == pair[0]:
            of_first.append((least - other_most, choice))
        else:
            of_second.append((most - other_least, choice))
    # Times are cut to whole microseconds.
    doubt = len(chosen) + 10
    for of_first, of_second in leads.values():
        if of_first and of_second:
            (lead, ahead), (other, behind) = max(of_first, key=_lead), min(of_second, key=_lead)
            if lead > other + doubt:
                return (
                    f"session {pair[0]} was chosen with a lead of {lead / 1000:.1f} ms ({ahead}), "
                    f"and session {pair[1]} with one of {other / 1000:.1f} ms ({behind})"
                )
    return None


def _lead(entry) -> float:
    return entry[0]
