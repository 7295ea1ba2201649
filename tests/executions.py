"""Which results a build makes, and how often: what began while another was at it, what was made
though it was whole, and what was cut.

The engine of a copy of the project notes it, in all processes: under a lock, so that of two who
make one result the later finds the other, and looks whether it lives. All are on one machine.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from ptq_dynamics.engine import signals
from ptq_dynamics.engine.current import is_current

ENGINE = "workflow/ptq_dynamics/engine/execute.py"
# What the engine of the copy ends with; jobs do not depend on it.
OBSERVED = """

import sys

sys.path.append({folder!r})
import executions

executions.observe(globals(), {journal!r})
"""
# `PUBLISHED` is what another process had made, which was cut before that.
ENDS = DONE, LEFT, FAILED = "done", "left", "failed"
BEGAN, PUBLISHED, REMOVED = "began", "published", "removed"


@dataclass
class Count:
    """Executions by what became of them, and manifests of what should not be: results that were
    made `together` by two, `needless`ly as they were whole, or anew as they were `lost`."""

    done: Counter[str] = field(default_factory=Counter)
    published: int = 0
    left: int = 0
    failed: int = 0
    cut: int = 0
    together: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All that began."""
        return self.done.total() + self.left + self.failed + self.cut

    @property
    def wrong(self) -> dict[str, list[str]]:
        """What should be empty."""
        found = {"together": self.together, "needless": self.needless, "lost": self.lost}
        return {what: names for what, names in found.items() if names}

    def __str__(self) -> str:
        return (
            f"{self.total} executions, {self.done.total()} to their end, {self.left} called back, "
            f"{self.failed} failed, {self.cut} cut; {self.published} published after a cut; "
            f"{len(self.together)} at once with another, {len(self.needless)} of whole results, "
            f"{len(self.lost)} of lost ones"
        )


class Journal:
    """What processes noted, a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, folder: Path, path: Path) -> "Journal":
        """The journal at a path, in which a copy of the project notes its executions from now
        on."""
        text = OBSERVED.format(folder=str(Path(__file__).parent), journal=str(path))
        with (folder / ENGINE).open("a") as engine:
            engine.write(text)
        return cls(path)

    def removed(self) -> None:
        """All results were removed: what is made from now on is made for the first time."""
        with self._lines() as lines:
            lines.append({"what": REMOVED})

    def began(self, manifest: str, identity: str, *, whole: bool) -> None:
        """This process makes a result, which is there already if `whole`."""
        own = os.getpid()
        with self._lines() as lines:
            beside = [
                pid
                for (name, pid), line in _open(lines).items()
                if name == manifest and _lives(pid, line["born"])
            ]
            lines.append(
                {
                    "what": BEGAN,
                    "manifest": manifest,
                    "identity": identity,
                    "pid": own,
                    "born": psutil.Process(own).create_time(),
                    "whole": whole,
                    "beside": beside,
                }
            )

    def at_work(self) -> list[int]:
        """Processes that make a result now."""
        with self._lines() as lines:
            found = _open(lines).items()
        return [pid for (_, pid), line in found if _lives(pid, line["born"])]

    def ended(self, what: str, manifest: str) -> None:
        """What this process began has come to an end."""
        with self._lines() as lines:
            lines.append({"what": what, "manifest": manifest, "pid": os.getpid()})

    def count(self) -> Count:
        """All that was noted."""
        with self._lines() as lines:
            noted = list(lines)
        count, made = Count(), dict[str, str]()
        under_way = dict[tuple[str, int], dict]()
        for line in noted:
            what, name = line["what"], line.get("manifest", "")
            began = under_way.pop((name, line.get("pid")), None)
            if what == REMOVED:
                made.clear()
            elif what == PUBLISHED:
                count.published += 1
            elif what == BEGAN:
                count.cut += began is not None
                under_way[name, line["pid"]] = line
                count.together += [name] if line["beside"] else []
                count.needless += [name] if line["whole"] else []
                if made.get(name) == line["identity"] and not line["whole"]:
                    count.lost.append(name)
            elif began is not None:
                count.left += what == LEFT
                count.failed += what == FAILED
                if what == DONE:
                    count.done[name] += 1
                    made[name] = began["identity"]
        count.cut += len(under_way)
        return count

    @contextmanager
    def _lines(self) -> Iterator[list[dict]]:
        """All lines, locked; those that are added are written."""
        with self.path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            lines = [json.loads(line) for line in file]
            known = len(lines)
            yield lines
            file.writelines(f"{json.dumps(line)}\n" for line in lines[known:])


def _open(lines: list[dict]) -> dict[tuple[str, int], dict]:
    """What began and has not ended, by manifest and process."""
    found = dict[tuple[str, int], dict]()
    for line in lines:
        if line["what"] == BEGAN:
            found[line["manifest"], line["pid"]] = line
        elif line["what"] in ENDS:
            found.pop((line["manifest"], line["pid"]), None)
    return found


def _lives(pid: int, born: float) -> bool:
    try:
        process = psutil.Process(pid)
        # The time of the start is counted from that of the machine, which is corrected at times.
        same = abs(process.create_time() - born) < 2
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def observe(engine: dict, path: str) -> None:
    """Have `jobs.execute`, given by its names, note what it does."""
    journal = Journal(Path(path))
    build, make = engine["_build"], engine["_make"]
    state = {"restoring": False, "began": False}

    def making(job, paths, inputs, identity, work, progress, earlier):
        # What is only compared is no result, and what was dropped is made again on purpose.
        if earlier is not None and not state["restoring"]:
            journal.began(str(paths.manifest), identity, whole=is_current(job))
            state["began"] = True
        return make(job, paths, inputs, identity, work, progress, earlier)

    def building(job, paths, progress, lease, restoring):
        state.update(restoring=restoring, began=False)
        name = str(paths.manifest)
        end = FAILED
        try:
            build(job, paths, progress, lease, restoring)
            end = DONE
        except signals.CalledBack:
            end = LEFT
            raise
        finally:
            # Still under the lease: whoever comes next finds nobody at work.
            if state["began"]:
                journal.ended(end, name)
            elif end == DONE and not restoring:
                journal.ended(PUBLISHED, name)

    engine.update(_build=building, _make=making)
