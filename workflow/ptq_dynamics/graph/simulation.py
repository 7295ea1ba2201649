"""When jobs run that wait for each other and share what there is of a machine: list scheduling.

Whenever something is free, the jobs that are ready and fit start, first the one that begins the
longest chain of jobs. Source: Graham (1969), "Bounds on multiprocessing timing anomalies"; where
each job takes one of N like machines, that is at most 2 − 1/N times the least that is possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain

# What a job takes, or what there is: of each resource in turn.
Amounts = tuple[float, ...]


@dataclass(frozen=True)
class Timed:
    """A job: its `seconds`, the numbers of the jobs that it waits for, and what it takes while it
    runs."""

    seconds: float
    waits_for: Sequence[int]
    takes: Amounts


@dataclass(frozen=True)
class Schedule:
    """When jobs start and end, in seconds, and the longest chain of jobs."""

    starts: list[float]
    ends: list[float]
    chain: float

    @property
    def seconds(self) -> float:
        """When all has ended."""
        return max(self.ends, default=0.0)


def schedule(jobs: Sequence[Timed], there_is: Amounts) -> Schedule:
    """A schedule of jobs; O(jobs log jobs) for few kinds of what they take.

    ValueError: a job takes more than there is, or waits for itself through others.
    """
    for job in jobs:
        if any(own > most for own, most in zip(job.takes, there_is, strict=True)):
            raise ValueError(f"a job takes {job.takes}, and there is {there_is}")
    after, ahead = _followers(jobs), _ahead(jobs)
    missing = [len(job.waits_for) for job in jobs]
    starts, ends = [0.0] * len(jobs), [0.0] * len(jobs)
    free = list(there_is)
    # Those that are ready, by what they take, the one with most ahead first.
    ready: dict[Amounts, list[tuple[float, int]]] = {job.takes: [] for job in jobs}
    running: list[tuple[float, int]] = []
    for number, count in enumerate(missing):
        if not count:
            heappush(ready[jobs[number].takes], (-ahead[number], number))
    now = 0.0
    while True:
        while fitting := [
            waiting[0]
            for takes, waiting in ready.items()
            if waiting and all(own <= left for own, left in zip(takes, free, strict=True))
        ]:
            _, number = min(fitting)
            heappop(ready[jobs[number].takes])
            starts[number], ends[number] = now, now + jobs[number].seconds
            free = [left - own for left, own in zip(free, jobs[number].takes, strict=True)]
            heappush(running, (ends[number], number))
        if not running:
            return Schedule(starts, ends, max(ahead, default=0.0))
        now = running[0][0]
        while running and running[0][0] == now:
            _, number = heappop(running)
            free = [left + own for left, own in zip(free, jobs[number].takes, strict=True)]
            for follower in after[number]:
                missing[follower] -= 1
                if not missing[follower]:
                    heappush(ready[jobs[follower].takes], (-ahead[follower], follower))


def high_water(changes: Sequence[tuple[float, float]], before: float = 0.0) -> float:
    """The largest sum of changes, each at its time, that begins `before`; of changes at one time,
    what becomes less comes first."""
    most = level = before
    for _, change in sorted(changes):
        level += change
        most = max(most, level)
    return most


def _followers(jobs: Sequence[Timed]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in jobs]
    for number, job in enumerate(jobs):
        for before in job.waits_for:
            found[before].append(number)
    return found


def _ahead(jobs: Sequence[Timed]) -> list[float]:
    """Seconds from the start of each job to the end of the longest chain that begins with it."""
    after, missing = _followers(jobs), [len(job.waits_for) for job in jobs]
    order = [number for number, count in enumerate(missing) if not count]
    for number in order:
        for follower in after[number]:
            missing[follower] -= 1
            if not missing[follower]:
                order.append(follower)
    if len(order) < len(jobs):
        raise ValueError("jobs wait for each other in a circle")
    found = [0.0] * len(jobs)
    for number in reversed(order):
        longest = max(chain((found[each] for each in after[number]), [0.0]))
        found[number] = jobs[number].seconds + longest
    return found
