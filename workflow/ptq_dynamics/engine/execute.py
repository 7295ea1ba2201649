"""Execute one job: the only place where results come into being.

It takes the code it was planned with, checks the inputs, lets the stage write into a hidden work
folder, and publishes the result, all under a lease on the folder. What is interrupted before the
manifest is written leaves no manifest, and so no result.
"""

import contextlib
import datetime
import importlib
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from ptq_dynamics.base.problem import Problem, is_full_disk
from ptq_dynamics.engine import (
    checkout,
    codes,
    fingerprint,
    manifest,
    record,
    repository,
    signals,
    verified,
)
from ptq_dynamics.engine.context import BEGINS, Context, Progress
from ptq_dynamics.engine.current import is_current
from ptq_dynamics.engine.devices import leased
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS
from ptq_dynamics.engine.lease import Lease, held
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.publish import (
    OUT,
    is_prepared,
    is_worth_keeping,
    mend_times,
    prepare,
    publish,
    take_over,
)
from ptq_dynamics.engine.repository import Git
from ptq_dynamics.engine.restore import restore
from ptq_dynamics.engine.settings import decode
from ptq_dynamics.engine.variables import DEVICE_MAP

# Work folders of other specifications that stay until a job has its result: states are large.
OTHERS = 3


def execute(
    job: Mapping[str, Any],
    *,
    restoring: bool = False,
    comparing: bool = False,
    if_stale: bool = False,
    counted: bool = False,
    devices: int = 0,
) -> int:
    """Run a job in this process and say in one line what went wrong, if anything did.

    When `restoring`, its result is there but for dropped files, which alone are made again; when
    `comparing`, its result is made once more and left as it is, and has to be the same; with
    `if_stale`, it does nothing where its result is current. Of one that is `counted`, the build
    says that it is done. It computes on so many `devices`, where it has to share them with others.
    """
    label = f"{job['stage']} {job['name']}"
    paths = Paths.of(job)
    log: TextIO | None = None
    try:
        if comparing:
            progress = Progress(label)
            with leased(devices, progress.say):
                _compare(job, paths, progress)
            return 0
        paths.folder.mkdir(parents=True, exist_ok=True)
        with held(paths.lease, Progress(label).say, signals.stop) as lease, _owning(lease):
            mend_times(chain.from_iterable(job["inputs"].values()))
            if _is_done(job, paths, restoring, if_stale or lease.waited):
                return 0
            paths.log.write_text("", encoding="utf-8")
            # Several processes may add to it.
            log = paths.log.open("a", encoding="utf-8")
            progress = Progress(label, log)
            progress.note(f"{BEGINS}{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC")
            with leased(devices, progress.say):
                clock = time.monotonic()
                _build(job, paths, progress, lease, restoring)
            end = f"done in {time.monotonic() - clock:.1f} s"
            progress.note(end) if counted else progress.say(end)
        return 0
    except signals.CalledBack:
        signals.answer()
        Progress(label, log).say("saved, and goes on from there when it is started again")
        return signals.AGAIN
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


@contextlib.contextmanager
def _owning(lease: Lease) -> Iterator[None]:
    """Who has lost the lease finds nothing where it was: that is said, and not what it misses.
    Libraries have errors of their own for that."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):
            lease.require()
        raise


def _explain(error: BaseException, paths: Paths) -> str:
    if isinstance(error, Problem):
        return f"{error} (log: {paths.log})"
    if isinstance(error, KeyboardInterrupt):
        return signals.INTERRUPTED
    if is_full_disk(error):
        where = f"see {paths.folder}; it may be a quota"
        return f"the disk is full; free some space ({where}) and run the command again"
    return f"{type(error).__name__}: {error} (traceback in {paths.log})"


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
    commit = _take_code(job)
    inputs, identity, earlier = _read_inputs(job)
    work = take_over(paths, identity, lease.token, earlier)
    made: Manifest | None = None
    if restoring or not is_prepared(work, paths):
        resumable = _is_resumable(job)
        if not resumable:
            shutil.rmtree(work, ignore_errors=True)
        _make_room(paths, work, resumable)
        made = _make(job, paths, inputs, identity, work, progress, paths.folder)
        seconds = time.monotonic() - clock
        if restoring:
            lease.require()
            _give_back(made, work / OUT)
        else:
            account = record.describe(job, inputs, made, commit, started, seconds)
            prepare(work, made, account.text())
    if not restoring:
        # Where it cannot be written, who plans writes it later, or says why not.
        with contextlib.suppress(OSError, Problem):
            codes.add(codes.table_of(paths.folder), codes.held(job))
        publish(work, paths, lease.require)
        # What another process left there was not read by this one.
        if made is not None:
            verified.note(made, made.files)
    for folder in paths.works():
        shutil.rmtree(folder, ignore_errors=True)


def _compare(job: Mapping[str, Any], paths: Paths, progress: Progress) -> None:
    """Make a result again, from nothing and elsewhere; `Problem` where it comes out different.

    Nothing is written beside it, which may be a released tree that nobody may write to.
    """
    _take_code(job)
    inputs, *_ = _read_inputs(job)
    identity = record.read(paths.record).carried
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-compare-") as folder:
        made = _make(job, paths, inputs, identity, Path(folder), progress, None)
    known = manifest.read(paths.manifest)
    names = sorted({*known.files, *made.files})
    differing = [name for name in names if known.files.get(name) != made.files.get(name)]
    # As they stand on disk, where tuples are lists.
    if differing or known.text() != made.text():
        raise Problem(f"it came out different in {', '.join(differing) or 'its facts'}")


def _read_inputs(job: Mapping[str, Any]) -> tuple[dict[str, list[Manifest]], str, str | None]:
    """The manifests that a job reads, by label, and the identity of what it makes of them, now and
    as it was taken before."""
    inputs = {
        label: [manifest.read(Path(path), restore) for path in group]
        for label, group in job["inputs"].items()
    }
    digests = {label: [each.digest() for each in group] for label, group in inputs.items()}
    held = job.get(DEFINITIONS)
    earlier = None if held is None else record.former(job, held, digests)
    return inputs, record.identity(job, digests), earlier


def _make(
    job: Mapping[str, Any],
    paths: Paths,
    inputs: Mapping[str, list[Manifest]],
    identity: str,
    work: Path,
    progress: Progress,
    earlier: Path | None,
) -> Manifest:
    """Have the stage write into a folder of `work`; the manifest of what is there then."""
    stage = _stage(job)
    out, scratch = work / OUT, work / "scratch"
    out.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(exist_ok=True)
    settings = decode(stage.run, job["settings"])
    spread = os.environ.get(DEVICE_MAP) or "auto"
    context = Context(
        job["name"], settings, inputs, out, scratch, progress, earlier, identity, spread
    )
    return manifest.describe(out, paths.manifest, stage.run(context))


def _stage(job: Mapping[str, Any]) -> ModuleType:
    return importlib.import_module(f"ptq_dynamics.{job['stage']}")


def _is_resumable(job: Mapping[str, Any]) -> bool:
    """Whether the job's stage goes on from what an interrupted try left."""
    return getattr(_stage(job), "RESUMABLE", False)


def _take_code(job: Mapping[str, Any]) -> Git | None:
    """Import the code that the job was planned with; its commit. What is edited later is neither
    run by it nor makes its result another's."""
    checkout.check(Path())
    fingerprint.check(job)
    commit = repository.state()
    fingerprint.load(job)
    # What was edited while it was imported may have been imported.
    fingerprint.check(job)
    return commit


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
