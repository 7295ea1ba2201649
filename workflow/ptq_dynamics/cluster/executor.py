"""The executor that sends jobs to SLURM, by that of Snakemake's plugin.

The plugin runs Snakemake in every SLURM job, which would plan all anew, twice a job, and forgets
what it submitted when it is killed. A job of this workflow is its specification, and its result
says whether it is done; so here a SLURM job runs packs of them alone (`node`), each is written down
before it is submitted (`ledger`), and what is on its way already is watched, not submitted again.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from ptq_dynamics.base.problem import Problem, is_full_disk
from ptq_dynamics.cluster import ledger, queue
from ptq_dynamics.cluster.asked import Array, Asked, Task, arrays
from ptq_dynamics.cluster.ledger import Ledger, Outcome, Place
from ptq_dynamics.cluster.queue import Queued
from ptq_dynamics.cluster.submission import Refused, submit
from ptq_dynamics.config.loading import load_site
from ptq_dynamics.config.site import ClusterSite as Site
from ptq_dynamics.engine import signals

FOLDER = Path(".snakemake/ptq-dynamics-slurm")
TIMES = 5  # that a job which could not be started is let go
LOOK = 1  # seconds between looks for outcomes
PATIENCE = 5.0  # seconds at most that an outcome which another node wrote may take to be seen
# What another try, with more memory and time, may mend.
WORTH_ANOTHER = {signals.KILLED, signals.STOPPED, signals.AGAIN}


class Executor(SlurmExecutor):  # type: ignore[misc]
    """Packs of jobs in arrays; see the module. All but `run_jobs` happens in one thread."""

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        settings = self.workflow.executor_settings
        try:
            if settings.site is None:
                raise Problem("--ptq-slurm-site names no file; use profiles/slurm")
            self._site: Site = load_site(settings.site)
        except Problem as problem:
            raise WorkflowError(str(problem)) from None
        settings.requeue = True
        self._ledger = Ledger(FOLDER)
        self._lock = threading.Lock()
        # Jobs that are ready, and arrays that SLURM did not take yet.
        self._ready: list[SubmittedJobInfo] = []
        self._waiting = dict[Path, Array]()
        self._earlier: dict[str, Place] | None = None
        self._asked_at = -float("inf")
        self._said = set[str]()
        self._let_go_of = Counter[str]()
        self._calls = 0

    def run_jobs(self, jobs: list[Any]) -> None:
        """Take jobs that are ready; those of some seconds are sent together."""
        for job in jobs:
            self.run_job_pre(job)
            for path in filter(os.path.exists, job.output):
                # Put back where the job fails, as on one machine.
                self.workflow.persistence.backup_output(Path(path))
            task = Task(str(job.params.job), job.shellcmd, Asked.of(job))
            info = SubmittedJobInfo(job, task.digest, {"task": task, "place": None})
            with self._lock:
                self._ready.append(info)
            self.report_job_submission(info)

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Say of what has ended how, and yield the rest."""
        self.next_seconds_between_status_checks = LOOK
        try:
            rest = self._look(active_jobs)
        except OSError as error:
            if not is_full_disk(error):
                raise
            raise WorkflowError(
                f"the disk is full, and what is sent cannot be written down in {FOLDER}; what was "
                "sent before goes on: free some space and run the same command again"
            ) from None
        for info in rest:
            yield info

    def _look(self, active_jobs: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Say of what has ended how, and send what is ready; the rest."""
        rest = [info for info in active_jobs if not self._has_outcome(info)]
        if rest and time.monotonic() - self._asked_at >= self._site.poll_seconds:
            queued = self._queue()
            if queued is not None:
                gone = [info for info in rest if self._has_left(info, queued)]
                rest = [info for info in rest if info not in gone]
                self._report_lost(gone)
                self._send(queued)
        return rest

    # Sending

    def _send(self, queued: dict[str, Queued]) -> None:
        """Submit what is ready, but for what is on its way."""
        names = {task.name: number.split("_")[0] for number, task in queued.items()}
        for folder in list(self._waiting):
            # It may have been taken in spite of what SLURM said.
            if folder.name in names:
                ledger.note_id(folder, names[folder.name])
                del self._waiting[folder]
            else:
                self._submit(folder, self._waiting[folder])
        with self._lock:
            ready, self._ready = self._ready, []
        earlier = self._on_their_way(queued)
        new = dict[str, SubmittedJobInfo]()
        for info in ready:
            aux = _aux(info)
            aux["place"] = earlier.pop(aux["task"].digest, None)
            if aux["place"] is None:
                new[aux["task"].file] = info
        tasks = [_aux(info)["task"] for info in new.values()]
        seconds, longest = 60 * self._site.pack_minutes, self._site.longest_minutes
        for array in arrays(tasks, seconds, longest, self.max_array_size):
            folder = self._ledger.open(array)
            for number, pack in enumerate(array.packs):
                for task in pack:
                    _aux(new[task.file])["place"] = ledger.place(folder, number, task)
            self._submit(folder, array)

    def _submit(self, folder: Path, array: Array) -> None:
        settings = self.workflow.executor_settings
        self._calls += 1
        try:
            number = submit(
                array, folder, self._site, self.slurm_logdir, settings, self._failed_nodes
            )
        except Refused as refused:
            if refused.later:
                self._say_once("SLURM takes no jobs now; they are sent later", str(refused))
                self._waiting[folder] = array
                return
            came = Outcome(1, f"SLURM does not take it: {refused}")
            for each, pack in enumerate(array.packs):
                for task in pack:
                    ledger.note_outcome(ledger.place(folder, each, task), came)
        else:
            ledger.note_id(folder, number)
        self._waiting.pop(folder, None)

    def _on_their_way(self, queued: dict[str, Queued]) -> dict[str, Place]:
        """Tasks that an earlier process submitted, and that have not ended, by digest."""
        if self._earlier is None:
            found = [place for place in self._ledger.unfinished() if _is_queued(place, queued)]
            self._earlier = {place.digest: place for place in found}
            if found:
                print(
                    f"{len(found)} jobs that were sent before are on their way; those that are "
                    "needed are watched, not sent again",
                    file=sys.stderr,
                    flush=True,
                )
        return self._earlier

    # Watching

    def _queue(self) -> dict[str, Queued] | None:
        found = queue.queue()
        self._asked_at = time.monotonic()
        if found is None:
            self._say_once("SLURM does not answer; its jobs are watched again when it does")
        for number, task in (found or {}).items():
            if not any(sign in task.reason for sign in queue.STUCK) or self._let_go(number, task):
                continue
            self._say_once(
                f"SLURM holds {number} ({task.reason}); scontrol release {number} lets it go"
            )
        return found

    def _let_go(self, number: str, task: Queued) -> bool:
        """Let a task of this folder go that SLURM holds because it could not start it on a node;
        whether SLURM does so."""
        if task.reason != queue.LAUNCH_FAILED or self._let_go_of[number] == TIMES:
            return False
        if not (FOLDER / task.name).is_dir():
            return False
        self._let_go_of[number] += 1
        return queue.release(number)

    def _has_outcome(self, info: SubmittedJobInfo) -> bool:
        """Whether it is known what came of a job, which is said then."""
        place: Place | None = _aux(info)["place"]
        came = None if place is None else ledger.outcome(place)
        if place is None or came is None:
            return False
        if came.status == 0:
            self.report_job_success(info)
        else:
            self._report(info, place, came.said, came.status in WORTH_ANOTHER)
        return True

    def _has_left(self, info: SubmittedJobInfo, queued: dict[str, Queued]) -> bool:
        """Whether a job was sent and is not in the queue any more."""
        place: Place | None = _aux(info)["place"]
        return (
            place is not None
            and place.folder not in self._waiting
            and not _is_queued(place, queued)
        )

    def _report_lost(self, gone: list[SubmittedJobInfo]) -> None:
        """Say of jobs that have left the queue how, as soon as that is seen here."""
        end = time.monotonic() + min(PATIENCE, self.workflow.execution_settings.latency_wait)
        while gone := [info for info in gone if not self._has_outcome(info)]:
            if time.monotonic() > end:
                break
            time.sleep(PATIENCE / 20)
        for info in gone:
            place: Place = _aux(info)["place"]
            number = ledger.number(place)
            how = (queue.ended(number) if number else None) or "nobody knows how"
            said = f"its SLURM job {number} has ended: {how}{self._last_word(place)}"
            # Whoever cancels a job does not want it again.
            self._report(info, place, said, not how.startswith("CANCELLED"))

    def _last_word(self, place: Place) -> str:
        """What SLURM itself said last in the log of a job."""
        try:
            lines = self._log(place).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        own = [line for line in lines if line.startswith("slurmstepd")]
        return f", {own[-1].partition('error: ')[2].strip(' *')}" if own else ""

    def _report(self, info: SubmittedJobInfo, place: Place, said: str, again: bool) -> None:
        job = info.job
        if not again:
            job.attempt = max(job.attempt, job.restart_times + 1)
        task: Task = _aux(info)["task"]
        what = "" if said.startswith(job.rule.name) else f"{job.output[0]}: "
        tried = "; it is tried again" if again and job.attempt <= job.restart_times else ""
        print(
            f"error: {what}{said}{tried} (log: {self._log(place)}, job: {task.file})",
            file=sys.stderr,
            flush=True,
        )
        self.workflow.scheduler.error_callback(job)

    def _log(self, place: Place) -> Path:
        return Path(os.path.relpath(self.slurm_logdir)) / f"{ledger.number(place)}.log"

    # Ending

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End what this build has sent."""
        places = [place for info in active_jobs if (place := _aux(info)["place"])]
        ids = sorted({number for place in places if (number := ledger.number(place))})
        if ids and (reason := queue.cancel(ids)):
            raise WorkflowError(f"jobs could not be cancelled ({reason}): scancel {' '.join(ids)}")

    def shutdown(self) -> None:
        """End watching."""
        super().shutdown()
        if self._calls:
            print(f"{self._calls} calls of sbatch", file=sys.stderr, flush=True)

    def _say_once(self, line: str, detail: str = "") -> None:
        if line not in self._said:
            self._said.add(line)
            print(f"{line} ({detail})" if detail else line, file=sys.stderr, flush=True)


def _aux(info: SubmittedJobInfo) -> dict[Any, Any]:
    assert info.aux is not None
    return info.aux


def _is_queued(place: Place, queued: dict[str, Queued]) -> bool:
    if ledger.number(place) is None:
        # Who submitted it did not get to write its id down.
        for number, task in queued.items():
            if task.name == place.name:
                ledger.note_id(place.folder, number.split("_")[0])
                break
    return ledger.number(place) in queued
