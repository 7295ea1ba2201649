"""What a build says as it goes: one line a finished job, and in the end what failed and where its
log is. Snakemake's own logger has four lines a job, and names it by a number."""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptq_dynamics.engine.journal import Journal
from ptq_dynamics.engine.paths import Paths

# Snakemake's events, and a message without one, that these lines stand for.
REPLACED = {"job_started", "job_finished", "progress"}
SELECTING = "Select jobs to execute..."
# A warning that is none here, as what a job has published is whole.
KEPT = "--keep-incomplete mode is set"
END = re.compile(r": done in ([\d.]+) s$")
ERROR = "error: "
LONGEST = 160  # characters of a reason, in the list of what failed
UNKNOWN = "it ended without saying why"
TAIL = 4096  # bytes at the end of a log that are read


@dataclass(frozen=True)
class Told:
    """A job of a build: its name, and where its result lies, if it is one of this project."""

    label: str
    paths: Paths | None

    @property
    def manifest(self) -> str:
        """By which others know the job."""
        return str(self.paths.manifest) if self.paths else self.label


class Telling(logging.Handler):
    """Hears what Snakemake logs of jobs, given by its numbers, says it in a line each, and notes it
    in the journal of the build. Jobs that are not `local` cannot say themselves why they fail."""

    def __init__(self, jobs: Mapping[int, Told], journal: Journal, *, local: bool) -> None:
        super().__init__()
        self._jobs, self._journal, self._local = jobs, journal, local
        self._logs = {job: _state(told.paths) for job, told in jobs.items()}
        self._done, self._failed = set[int](), dict[int, str]()
        self._unchanged = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Act on one of Snakemake's events."""
        event: Any = record.__dict__
        match event.get("event"):
            case "job_started":
                for job in self._known(event["jobs"]):
                    self._journal.note("began", self._jobs[job].manifest)
            case "job_finished":
                for job in self._known([event["job_id"]]):
                    self._say_done(job)
            case "job_error":
                for job in self._known([event["jobid"]]):
                    self._note_failed(job)
            case "group_error":
                for job in self._known(each["jobid"] for each in event["job_error_info"]):
                    self._note_failed(job)

    def sum_up(self, failed: Iterable[int], *, is_well: bool) -> None:
        """Say how the build has ended, where also these jobs failed."""
        for job in set(self._known(failed)) - self._done - self._failed.keys():
            self._note_failed(job)
        self._journal.note("end", seconds=float(is_well))
        count = f"{len(self._done)} of {len(self._jobs)} jobs are done"
        same = f", {self._unchanged} of them unchanged" if self._unchanged else ""
        lines = [count + same]
        if self._failed:
            left = len(self._jobs) - len(self._done) - len(self._failed)
            lines = [f"{count}{same}; {left} not begun; {len(self._failed)} failed:"]
        for job, reason in self._failed.items():
            told = self._jobs[job]
            log = f" (log: {told.paths.log})" if told.paths else ""
            lines += [f"  {told.label}{log}", f"    {shortened(reason)}"]
        _log(lines, logging.ERROR if self._failed else logging.INFO)

    def _known(self, jobs: Iterable[int]) -> list[int]:
        return [job for job in jobs if job in self._jobs]

    def _say_done(self, job: int) -> None:
        told = self._jobs[job]
        self._failed.pop(job, None)
        self._done.add(job)
        seconds, how = None, "done"
        if told.paths:
            # A job that finds its result to be right leaves the log of an earlier one.
            ended = END.search(last_line(told.paths.log) or "")
            if ended and _state(told.paths) != self._logs[job]:
                seconds, how = float(ended[1]), f"done in {ended[1]} s"
            else:
                self._unchanged, how = self._unchanged + 1, "unchanged"
        self._journal.note("done", told.manifest, seconds)
        _log([f"{told.label}: {how} ({len(self._done)} of {len(self._jobs)})"])

    def _note_failed(self, job: int) -> None:
        told = self._jobs[job]
        # A log that has not changed is of an earlier try.
        is_new = told.paths is not None and _state(told.paths) != self._logs[job]
        reason = failure(told.paths.log, told.label) if told.paths and is_new else None
        self._failed[job] = reason or UNKNOWN
        self._journal.note("failed", told.manifest)
        if not self._local and reason:
            _log([f"{ERROR}{told.label}: {reason}"], logging.ERROR)


def attach(telling: Telling, *, replacing: bool) -> None:
    """Let it hear Snakemake; where `replacing`, Snakemake itself no longer prints the same."""
    logger = _logger()
    if replacing:
        for handler in logger.handlers:
            if handler.name == "DefaultStreamHandler":
                handler.addFilter(_is_not_replaced)
    logger.addHandler(telling)


def last_line(log: Path) -> str | None:
    """The last line of a log that says something, if there is one."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if line.strip()), None)


def failure(log: Path, label: str) -> str | None:
    """Why the job of this name failed, if its log ends with that."""
    line = last_line(log) or ""
    return line.removeprefix(f"{ERROR}{label}: ") if line.startswith(ERROR) else None


def shortened(text: str) -> str:
    """A text of one line, cut where it is long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


def _is_not_replaced(record: logging.LogRecord) -> bool:
    text = str(record.msg)
    is_said = record.__dict__.get("event") in REPLACED or text == SELECTING
    return not is_said and not text.startswith(KEPT)


def _log(lines: list[str], level: int = logging.INFO) -> None:
    from snakemake.settings.enums import Quietness

    # Silenced by `--quiet progress`, as what it replaces.
    more = {} if level == logging.ERROR else {"quietness": Quietness.PROGRESS}
    for line in lines:
        _logger().log(level, line, extra=more)


def _logger() -> logging.Logger:
    from snakemake.logging import logger

    return logger


def _state(paths: Paths | None) -> int | None:
    """When a job last wrote to its log."""
    try:
        return paths.log.stat().st_mtime_ns if paths else None
    except OSError:
        return None
