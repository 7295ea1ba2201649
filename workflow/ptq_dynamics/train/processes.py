"""Several processes that train one run, one a device: the same run, but for the last bits.

The first process leads: it alone writes. A batch is shared out by rows, so a step has exactly its
tokens; gradients are averaged (DDP). Any number of processes goes on from a state.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context, Progress

T = TypeVar("T")
Work = Callable[[Context[Any], "Team"], Mapping[str, Any]]

# Exactly so many processes; or one for each visible GPU, but at most so many.
PROCESSES, GPUS = "PTQ_DYNAMICS_PROCESSES", "PTQ_DYNAMICS_GPUS"
# Who waits for the leader may wait for weights that are written to a slow disk.
PATIENCE = timedelta(days=30)
# Seconds in which a process that lost the others waits for the one that says why.
LAST_WORDS = 1.0
# The launcher takes these, and leaves them taken.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Team:
    """The processes that train a run, as one of them sees them: its rank, and their count."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether it writes."""
        return self.rank == 0

    def agreed(self, value: T) -> T:
        """What the leader has."""
        box = [value]
        if self.count > 1:
            distributed.broadcast_object_list(box)
        return box[0]

    def rows(self, batch: int) -> list[int]:
        """This process's share of the rows of a batch."""
        found: list[int] = np.array_split(range(batch), self.count)[self.rank].tolist()
        return found

    def parts(self, rows: Tensor, batch: int, most: int | None) -> list[tuple[Tensor, int]]:
        """These rows, in parts of at most `most`, each with the weight 1; and with the weight 0
        one that fills up: in the last part all exchange gradients."""
        largest = -(-batch // self.count)
        parts = [(part, 1) for part in rows.split(most or largest)]
        return parts + [(rows[:1], 0)] * (-(-largest // (most or largest)) - len(parts))


ALONE = Team()


def wanted(batch: int) -> int:
    """How many processes train a run with so many sequences a batch: PROCESSES, or as many of the
    visible GPUs as GPUS says."""
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


def run(stage: Work, context: Context[Any], batch: int) -> Mapping[str, Any]:
    """What a stage gives in as many processes as are wanted."""
    count = wanted(batch)
    if count == 1:
        return stage(context, ALONE)
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # What it says of processes that end, the job says in one line.
    for name in ("torch.distributed", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = LaunchConfig(1, 1, count, rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    config.run_id, config.max_restarts, config.local_addr = context.name, 0, "localhost"
    log = None if context.progress.log is None else Path(context.progress.log.name)
    given = replace(context, progress=Progress(context.progress.name))
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        facts: Any = elastic_launch(config, _work)(stage, given, log)[0]
    except SignalException:
        raise KeyboardInterrupt from None
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise Problem(
                f"process {failure.local_rank} of the job was killed (out of memory?); run the "
                "same command again to go on"
            ) from None
        told: Any = failure.message
        said = told["message"] if isinstance(told, dict) else told
        kind, _, reason = said.partition(": ")
        raise (Problem(reason) if kind == Problem.__name__ else RuntimeError(said)) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # After what the first process has written.
        if context.progress.log is not None:
            context.progress.log.seek(0, os.SEEK_END)
    return {**facts, "processes": count}


def _work(stage: Work, context: Context[Any], log: Path | None) -> Any:
    # What one of the launched processes does.
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
    # Not after an exception, where it could wait for processes that are stuck.
    distributed.destroy_process_group()
    return facts
