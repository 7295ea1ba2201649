"""Several processes that train one run, one process for each device.

Each process computes some rows of a batch, and DDP averages the gradients. The first process alone
writes files. The run differs from that of one process only in the last bits, and any number of
processes can resume from a state.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, distributed

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context, Progress

T = TypeVar("T")
Work = Callable[[Context[T], "Team"], Mapping[str, object]]

# Variables: the exact number of processes; the most processes, of which each has a visible GPU.
PROCESSES, GPUS = "PTQ_DYNAMICS_PROCESSES", "PTQ_DYNAMICS_GPUS"
# Processes may wait for the first one, which writes weights to a slow disk.
PATIENCE = timedelta(days=30)
LAST_WORDS = 1.0  # seconds in which another process may report the cause of a failure
# The launcher replaces the handlers of these signals, and does not restore them.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Team:
    """The rank of a process, and the count of all processes that train the run."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files."""
        return self.rank == 0

    def agreed(self, value: T) -> T:
        """Return the value of the first process."""
        box = [value]
        if self.count > 1:
            distributed.broadcast_object_list(box)
        return box[0]

    def rows(self, batch: int) -> list[int]:
        """Return this process's rows of a batch."""
        rows: list[int] = np.array_split(range(batch), self.count)[self.rank].tolist()
        return rows

    def parts(self, rows: Tensor, batch: int, most: int | None) -> list[tuple[Tensor, int]]:
        """Return rows in parts of at most `most`, with the weight 1. Parts of weight 0 follow, so
        that all processes have equally many: they exchange gradients in the last part."""
        largest = -(-batch // self.count)
        parts = [(part, 1) for part in rows.split(most or largest)]
        return parts + [(rows[:1], 0)] * (-(-largest // (most or largest)) - len(parts))


ALONE = Team()


def wanted(batch: int) -> int:
    """Return the number of processes for a batch of so many sequences, from PROCESSES, or from GPUS
    and the visible GPUs. Raises `Problem` if the batch or the GPUs do not suffice."""
    visible = torch.cuda.device_count()
    try:
        exactly = int(os.environ.get(PROCESSES) or 0)
        count = exactly or max(1, min(int(os.environ.get(GPUS) or 1), visible))
    except ValueError as error:
        raise Problem(f"{PROCESSES} or {GPUS} is no number of processes ({error})") from None
    if not 1 <= count <= batch or 0 < visible < count:
        raise Problem(
            f"{PROCESSES}={count}, but a batch of {batch} sequences can be shared out to 1 to "
            f"{min(batch, visible or batch)} processes here ({visible} GPUs)"
        )
    return count


def run(stage: Work[T], context: Context[T], batch: int) -> Mapping[str, object]:
    """Run a stage in the wanted number of processes; return its facts."""
    count = wanted(batch)
    if count == 1:
        return stage(context, ALONE)
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # The job reports ended processes in one line.
    for name in ("torch.distributed", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = LaunchConfig(1, 1, count, rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    config.run_id, config.max_restarts, config.local_addr = context.name, 0, "localhost"
    log = None if context.progress.log is None else Path(context.progress.log.name)
    sent = replace(context, progress=Progress(context.progress.name))
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        facts: Mapping[str, object] = elastic_launch(config, _work)(stage, sent, log)[0]
    except SignalException:
        raise KeyboardInterrupt from None
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise Problem(
                f"process {failure.local_rank} of the job was killed (out of memory?); run the "
                "same command again to resume"
            ) from None
        # torch declares a string, but it is a dictionary after an exception.
        message: str | dict[str, str] = failure.message
        cause = message["message"] if isinstance(message, dict) else message
        kind, _, reason = cause.partition(": ")
        raise (Problem(reason) if kind == Problem.__name__ else RuntimeError(cause)) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # The first process has written to the same file.
        if context.progress.log is not None:
            context.progress.log.seek(0, os.SEEK_END)
    return {**facts, "processes": count}


def _work(stage: Work[T], context: Context[T], log: Path | None) -> Mapping[str, object]:
    # The work of one launched process.
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(max(1, torch.get_num_threads() // count))
    has_gpus = torch.cuda.is_available()
    if has_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank:
        context.progress.interval = float("inf")
    elif log is not None:
        context.progress.log = log.open("a", encoding="utf-8")
    distributed.init_process_group("cpu:gloo,cuda:nccl" if has_gpus else "gloo", timeout=PATIENCE)
    try:
        facts = stage(context, Team(rank, count))
    except Problem:
        raise
    except Exception:
        time.sleep(LAST_WORDS)
        raise
    # After an exception this could wait for stuck processes.
    distributed.destroy_process_group()
    return facts
