"""Execute one job: the only place where results come into being.

It takes the code it was planned with, checks the inputs, lets the stage write into a hidden work
folder, and publishes the result, all under a lease on the folder. What is interrupted before the
manifest is written leaves no manifest, and so no result.
"""

import contextlib
import datetime
import errno
import hashlib
import importlib
import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from ptq_dynamics.content import canonical
from ptq_dynamics.jobs import checkout, fingerprint, manifest, record, signals, verified
from ptq_dynamics.jobs.context import Context, Progress
from ptq_dynamics.jobs.current import essence, is_current
from ptq_dynamics.jobs.lease import Lease, held
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.jobs.paths import Paths
from ptq_dynamics.jobs.publish import is_prepared, is_worth_keeping, mend_times, prepare, publish
from ptq_dynamics.jobs.record import Git
from ptq_dynamics.jobs.restore import restore
from ptq_dynamics.jobs.settings import decode
from ptq_dynamics.problem import Problem

# Work folders of other specifications that stay until a job has its result: states are large.
OTHERS = 3
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def execute(job: Mapping[str, Any], *, restoring: bool = False, if_stale: bool = False) -> int:
    """Run a job in this process and say in one line what went wrong, if anything did.

    When `restoring`, its result is there but for dropped files, which alone are made again; with
    `if_stale`, it does nothing where its result is current.
    """
    label = f"{job['stage']} {job['name']}"
    paths = Paths.of(job)
    log: TextIO | None = None
    try:
        paths.folder.mkdir(parents=True, exist_ok=True)
        with held(paths.lease, Progress(label).say, signals.stop) as lease:
            mend_times(chain.from_iterable(job["inputs"].values()))
            if _is_done(job, paths, restoring, if_stale or lease.waited):
                return 0
            log = paths.log.open("w", encoding="utf-8")
            _build(job, paths, Progress(label, log), lease, restoring)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        message = _explain(error, paths)
        signals.answer()
        # A full disk may take neither the traceback nor the line.
        with contextlib.suppress(OSError):
            if log is not None and not isinstance(error, Problem | KeyboardInterrupt):
                traceback.print_exc(file=log)
        _complain(f"{label}: {message}", log)
        return 1
    finally:
        with contextlib.suppress(OSError):
            if log is not None:
                log.close()


def _is_done(job: Mapping[str, Any], paths: Paths, restoring: bool, if_stale: bool) -> bool:
    """Whether there is nothing to do, such as when another process has just done the job."""
    if restoring:
        return manifest.read(paths.manifest).state == "present"
    return if_stale and is_current(job)


def _explain(error: BaseException, paths: Paths) -> str:
    if isinstance(error, Problem):
        return f"{error} (log: {paths.log})"
    if isinstance(error, KeyboardInterrupt):
        return signals.INTERRUPTED
    if _is_full_disk(error):
        where = f"see {paths.folder}; it may be a quota"
        return f"the disk is full; free some space ({where}) and run the command again"
    return f"{type(error).__name__}: {error} (traceback in {paths.log})"


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return True
    # Errors of copytree and of safetensors hold the system's error in their text alone.
    signs = [text for n in FULL_DISK for text in (os.strerror(n), f"os error {n})")]
    return any(sign in str(error) for sign in signs)


def _complain(message: str, log: TextIO | None = None) -> None:
    line = "error: " + " ".join(message.split())
    for stream in filter(None, (sys.stderr, log)):
        with contextlib.suppress(OSError):
            stream.write(f"{line}\n")
            stream.flush()


def _build(
    job: Mapping[str, Any], paths: Paths, progress: Progress, lease: Lease, restoring: bool
) -> None:
    started = datetime.datetime.now(datetime.UTC)
    clock = time.monotonic()
    checkout.check(Path())
    commit = _take_code(job)
    inputs = {
        label: [manifest.read(Path(path), restore) for path in group]
        for label, group in job["inputs"].items()
    }
    work = paths.work(_identity(job, inputs))
    out, scratch = work / "out", work / "scratch"
    stage = importlib.import_module(f"ptq_dynamics.{job['stage']}")
    made: Manifest | None = None
    if restoring or not is_prepared(work, paths):
        resumable = getattr(stage, "RESUMABLE", False)
        if not resumable:
            shutil.rmtree(work, ignore_errors=True)
        _make_room(paths, work, resumable)
        out.mkdir(parents=True, exist_ok=True)
        scratch.mkdir(exist_ok=True)
        settings = decode(stage.run, job["settings"])
        context = Context(job["name"], settings, inputs, out, scratch, progress, paths.folder)
        facts = stage.run(context)
        made = manifest.describe(out, paths.manifest, facts)
        seconds = time.monotonic() - clock
        if restoring:
            lease.require()
            _give_back(made, out)
        else:
            account = record.describe(job, inputs, made, commit, started, seconds)
            prepare(work, made, account.text())
    if not restoring:
        publish(work, paths, lease.require)
        # What another process left there was not read by this one.
        if made is not None:
            verified.note(made, made.files)
    for folder in paths.works():
        shutil.rmtree(folder, ignore_errors=True)
    progress.say(f"done in {time.monotonic() - clock:.1f} s")


def _take_code(job: Mapping[str, Any]) -> Git | None:
    """Import the code that the job was planned with; its commit. What is edited later is neither
    run by it nor makes its result another's."""
    fingerprint.check(job)
    commit = record.git()
    fingerprint.load(job)
    # What was edited while it was imported may have been imported.
    fingerprint.check(job)
    return commit


def _identity(job: Mapping[str, Any], inputs: Mapping[str, list[Manifest]]) -> str:
    """Hex digest of all that the result depends on; names the state of an interrupted job."""
    digests = {label: [m.digest() for m in group] for label, group in inputs.items()}
    return hashlib.sha256(canonical([essence(job), digests]).encode()).hexdigest()


def _give_back(result: Manifest, out: Path) -> None:
    """Move dropped files to their place; what else there is stays as it is."""
    known = manifest.read(result.path)
    if known.text() != result.text():
        raise Problem(
            f"made again, {result.folder} came out different from its manifest (another processor "
            f"or library?); to take what comes out now, rm {result.path} and build again"
        )
    names = known.dropped()
    for name in names:
        place = result.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(out / name, place)
    known.is_whole()
    verified.note(known, names)


def _make_room(paths: Paths, work: Path, resumable: bool) -> None:
    """Remove work folders of other specifications, but for the last few that a job could go on
    from: what this one makes may fail, and the edit that it came from be undone."""
    others = [folder for folder in paths.works() if folder != work]
    useful = [folder for folder in others if is_worth_keeping(folder, resumable)]
    useful.sort(key=lambda folder: folder.joinpath("scratch").stat().st_mtime)
    for folder in {*others} - {*useful[-OTHERS:]}:
        shutil.rmtree(folder, ignore_errors=True)
