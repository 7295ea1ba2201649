"""Run a pack of tasks on a node: `python -m ptq_dynamics.cluster.node FOLDER`, as a task of a SLURM
job array.

Some time before the limit SLURM calls the pack back (SIGUSR1). Its task saves its state, if it has
any, and the pack is queued again; what is done by then is not done again. SIGTERM ends it: SLURM
queues it again if that was for a job of higher priority.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ptq_dynamics.cluster import ledger
from ptq_dynamics.cluster.ledger import Outcome, Pack, Place
from ptq_dynamics.cluster.queue import requeue
from ptq_dynamics.engine import signals
from ptq_dynamics.engine.warm import launch

# As Snakemake does for jobs on its own machine.
LIMITS = ("OMP", "GOTO", "OPENBLAS", "MKL", "VECLIB", "NUMEXPR")
# Of the seconds of notice: what a task that does not save its state may go on for.
SHARE = 2 / 3
ERROR = "error: "


class Runner:
    """The tasks of a pack, one after the other."""

    def __init__(self, folder: Path, number: int, notice: float) -> None:
        self._pack: Pack = ledger.pack(folder, number)
        self._places = ledger.places(folder, number)
        self._notice = notice
        self._task: subprocess.Popen[str] | None = None
        self._called_back = self._ended = False
        self._stops = float("inf")
        signal.signal(signals.CALL, self._call_back)
        signal.signal(signal.SIGTERM, self._end)

    def run(self) -> int:
        """Run what has no outcome yet; exit status 0 when all tasks have one."""
        waiting = [
            (command, place)
            for command, place in zip(self._pack.commands, self._places, strict=True)
            if ledger.outcome(place) is None
        ]
        limits = {f"{name}_NUM_THREADS": str(self._pack.threads) for name in LIMITS}
        environment = {**os.environ, **limits}
        for tried, (command, place) in enumerate(waiting):
            status, said = self._run(command, environment)
            if self._ended:
                return signals.STOPPED
            if status in (signals.AGAIN, 128 + signals.CALL):
                return self._again(place)
            if self._called_back and status == signals.STOPPED:
                if tried == 0:
                    # It had all the time there is, and would not get further.
                    said = f"it was not done within its time limit of {self._pack.minutes} min"
                    ledger.note_outcome(place, Outcome(status, said))
                return self._again(place)
            ledger.note_outcome(place, Outcome(status, said if status else ""))
            if self._called_back and tried + 1 < len(waiting):
                return self._again(waiting[tried + 1][1])
        return 0

    def _run(self, command: str, environment: dict[str, str]) -> tuple[int, str]:
        """Exit status of a task, and why it failed."""
        said = "its process was killed (out of memory?)"
        # Signals are for the task itself, not for a shell around it.
        shell = ["/bin/sh", "-c", f"exec {command}"]
        with subprocess.Popen(shell, stderr=subprocess.PIPE, text=True, env=environment) as task:
            self._task = task
            # Whoever called before there was a task to call.
            if self._ended:
                task.terminate()
            elif self._called_back:
                task.send_signal(signals.CALL)
            for line in task.stderr or ():
                # The log may be on a full disk, and the task not.
                with contextlib.suppress(OSError):
                    sys.stderr.write(line)
                    sys.stderr.flush()
                if line.startswith(ERROR):
                    said = line.removeprefix(ERROR).rstrip()
        self._task = None
        status = task.returncode if task.returncode >= 0 else 128 - task.returncode
        stopped = self._called_back and time.monotonic() >= self._stops
        return signals.STOPPED if stopped and status else status, said

    def _again(self, place: Place) -> int:
        """Have the rest queued again."""
        if all(ledger.outcome(each) is not None for each in self._places):
            return 0
        own = os.environ
        if requeue(f"{own['SLURM_ARRAY_JOB_ID']}_{own['SLURM_ARRAY_TASK_ID']}"):
            # SLURM ends this process now.
            time.sleep(self._notice)
        said = "its time was up, and SLURM did not queue it again"
        ledger.note_outcome(place, Outcome(signals.AGAIN, said))
        return 1

    def _call_back(self, number: int, frame: FrameType | None) -> None:
        if self._called_back:
            return
        self._called_back = True
        self._stops = time.monotonic() + SHARE * self._notice
        if self._task is not None:
            self._task.send_signal(signals.CALL)
        watch = threading.Timer(SHARE * self._notice, self._stop)
        watch.daemon = True
        watch.start()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.terminate()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ended = True
        if self._task is not None:
            self._task.terminate()


def _prepare(files: Sequence[str]) -> None:
    """Have libraries that several tasks compute with imported once."""
    jobs = [json.loads(Path(file).read_text(encoding="utf-8")) for file in files]
    jobs = [job.get("job", job) for job in jobs]
    uses = Counter(library for job in jobs for library in job["environment"])
    shared = [library for library, count in uses.items() if count > 1]
    if shared:
        launch.start(shared)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pack of this task of the array."""
    folder, notice = arguments or sys.argv[1:]
    number = int(os.environ["SLURM_ARRAY_TASK_ID"])
    _prepare(ledger.pack(Path(folder), number).files)
    return Runner(Path(folder), number, float(notice)).run()


if __name__ == "__main__":
    sys.exit(main())
