"""How many calls of sbatch a build takes: a simulation with the packs of the executor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil

from ptq_dynamics.cluster.asked import Task, arrays
from ptq_dynamics.config.site import ClusterSite as Site


@dataclass(frozen=True)
class Sent:
    """Calls of sbatch, and the SLURM jobs that they submit."""

    calls: int
    jobs: int


def simulate(
    tasks: Mapping[str, Task], needs: Mapping[str, Sequence[str]], site: Site, gpus: int, most: int
) -> Sent:
    """What is sent where tasks by name need others and `gpus` are free, with `most` tasks sent at
    once; as often as the queue is asked, what has become ready is submitted.

    Of a SLURM job that has begun, every task takes its expected seconds; there are cores for all.
    ValueError: a task needs itself through others.
    """
    missing = {name: sum(each in tasks for each in needs[name]) for name in tasks}
    after: dict[str, list[str]] = {name: [] for name in tasks}
    for name in tasks:
        for each in needs[name]:
            if each in tasks:
                after[each].append(name)
    names = {task.file: name for name, task in tasks.items()}
    ready = [name for name, count in missing.items() if not count]
    ends: list[tuple[float, str, int]] = []  # when a task ends, and the GPUs that are free then
    queued: list[tuple[Task, ...]] = []
    calls = jobs = sent = done = 0
    now, free = 0.0, gpus
    while ready or queued or ends:
        send, ready = ready[: most - sent], ready[most - sent :]
        for array in arrays((tasks[name] for name in send), 60 * site.pack_minutes, *_limits(site)):
            calls, jobs = calls + 1, jobs + len(array.packs)
            queued += array.packs
        sent += len(send)
        waiting: list[tuple[Task, ...]] = []
        for pack in queued:
            takes = min(pack[0].asked.gpus, gpus)
            if takes > free:
                waiting.append(pack)
                continue
            free -= takes
            end = now
            for task in pack:
                end += task.asked.seconds
                heappush(ends, (end, names[task.file], takes if task is pack[-1] else 0))
        queued = waiting
        # The next look at the queue after something has ended.
        now = site.poll_seconds * ceil(ends[0][0] / site.poll_seconds)
        while ends and ends[0][0] <= now:
            _, name, given_back = heappop(ends)
            free, sent, done = free + given_back, sent - 1, done + 1
            for each in after[name]:
                missing[each] -= 1
                if not missing[each]:
                    ready.append(each)
    if done < len(tasks):
        raise ValueError("jobs wait for each other in a circle")
    return Sent(calls, jobs)


def _limits(site: Site) -> tuple[int, int]:
    # As many packs in an array as SLURM's MaxArraySize has them by itself.
    return site.longest_minutes, 1000
