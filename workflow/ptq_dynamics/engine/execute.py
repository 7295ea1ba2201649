"""Execute one job: the only place where results come into being.

It takes the code it was planned with, verifies the inputs, lets the stage write into a hidden work
folder, and publishes the result, all under a lease. A job that is interrupted before the record is
written leaves no result.
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
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from pydantic import TypeAdapter

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem, is_full_disk
from ptq_dynamics.engine import checkout, code, freshness, machine, manifest, record, signals
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.engine.devices import leased
from ptq_dynamics.engine.lease import Lease, held
from ptq_dynamics.engine.libraries import versions
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import RECORD, Paths
from ptq_dynamics.engine.publish import OUT, SCRATCH, is_prepared, make_room, publish, take_over
from ptq_dynamics.engine.restore import restore
from ptq_dynamics.engine.specification import restore_manifest

DEVICE_MAP = "PTQ_DYNAMICS_DEVICE_MAP"
Spec = Mapping[str, Any]


def execute(
    spec: Spec, *, restoring: bool = False, comparing: bool = False, devices: int = 0
) -> int:
    """Run a job in this process, and say in one line what went wrong, if anything did; the exit
    status.

    A job whose result is up to date only writes its manifest. When `restoring`, the result is there
    but for dropped files, which alone are made again; when `comparing`, it is made once more and
    left as it is, and has to be the same. The job leases `devices` GPUs, where there are any.
    """
    label, paths, log = f"{spec['stage']} {spec['name']}", Paths.of(spec), None
    try:
        if comparing:
            with leased(devices, Progress(label).say):
                _compare(spec, paths, Progress(label))
            return 0
        paths.folder.mkdir(parents=True, exist_ok=True)
        with held(paths.lease, Progress(label).say, signals.stop) as lease:
            _mend_times([str(paths.spec), *(p for group in spec["inputs"].values() for p in group)])
            if restoring:
                if not manifest.read(paths.manifest).dropped():
                    return 0
            elif not freshness.stale(spec, paths):
                restore_manifest(paths)
                return 0
            log = paths.log.open("w", encoding="utf-8")
            progress, clock = Progress(label, log), time.monotonic()
            with leased(devices, progress.say):
                _build(spec, paths, progress, lease, restoring)
            progress.say(f"done in {time.monotonic() - clock:.1f} s")
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


def _mend_times(inputs: Iterable[str]) -> None:
    """Give inputs from the future the time that it is: after a clock was set back, Snakemake takes
    outputs that are older than their inputs for wrong."""
    for path in inputs:
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime > time.time():
                os.utime(path)


def _explain(error: BaseException, paths: Paths) -> str:
    if isinstance(error, Problem):
        return f"{error} (log: {paths.log})"
    if isinstance(error, KeyboardInterrupt):
        return signals.INTERRUPTED
    if is_full_disk(error):
        return f"the disk is full; free some space (see {paths.folder}) and run the command again"
    return f"{type(error).__name__}: {error} (traceback in {paths.log})"


def _complain(message: str, log: TextIO | None) -> None:
    line = "error: " + " ".join(message.split())
    for stream in filter(None, (sys.stderr, log)):
        with contextlib.suppress(OSError):
            stream.write(f"{line}\n")
            stream.flush()


def _build(spec: Spec, paths: Paths, progress: Progress, lease: Lease, restoring: bool) -> None:
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    commit, settings = machine.commit(), _take_code(spec)
    inputs, identity = _read_inputs(spec)
    work = take_over(paths, identity, lease.token)
    if restoring or not is_prepared(work, paths):
        if not getattr(_stage(spec), "RESUMABLE", False):
            shutil.rmtree(work, ignore_errors=True)
        make_room(paths, work)
        made = _make(spec, settings, inputs, identity, work, progress, paths)
        if restoring:
            lease.require()
            _give_back(made, work / OUT)
        else:
            seconds = time.monotonic() - clock
            account = record.describe(spec, inputs, made, commit, started, seconds)
            write_atomically(work / RECORD, account.text())
    if not restoring:
        publish(work, paths, record.read(work / RECORD), lease.require)
    for folder in paths.works():
        shutil.rmtree(folder, ignore_errors=True)


def _compare(spec: Spec, paths: Paths, progress: Progress) -> None:
    """Make a result again, from nothing and elsewhere; `Problem` where it comes out different."""
    settings = _take_code(spec)
    inputs, _ = _read_inputs(spec)
    known = record.read(paths.record)
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-compare-") as folder:
        made = _make(spec, settings, inputs, known.carried, Path(folder), progress, None)
    names = sorted({*known.files, *made.files})
    differing = [name for name in names if known.files.get(name) != made.files.get(name)]
    if differing or known.facts != made.facts:
        raise Problem(f"it came out different in {', '.join(differing) or 'its facts'}")


def _read_inputs(spec: Spec) -> tuple[dict[str, list[Manifest]], str]:
    """The manifests that a job reads, by label, and the identity of its result."""
    inputs = {
        label: [manifest.read(Path(path), restore) for path in group]
        for label, group in spec["inputs"].items()
    }
    digests = {str(each.path): each.digest() for group in inputs.values() for each in group}
    return inputs, record.identity(spec, digests)


def _make(
    spec: Spec,
    settings: Any,
    inputs: Mapping[str, list[Manifest]],
    identity: str,
    work: Path,
    progress: Progress,
    paths: Paths | None,
) -> Manifest:
    """Have the stage write into a folder of `work`; the manifest of what is there then."""
    out, scratch = work / OUT, work / SCRATCH
    out.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(exist_ok=True)
    spread, earlier = os.environ.get(DEVICE_MAP) or "auto", paths.folder if paths else None
    name = spec["name"]
    context = Context(name, settings, inputs, out, scratch, progress, earlier, identity, spread)
    facts = _stage(spec).run(context)
    return manifest.describe(out, Paths.of(spec).manifest, facts)


def _stage(spec: Spec) -> Any:
    return importlib.import_module(f"{checkout.PACKAGE}.{spec['stage']}")


def _take_code(spec: Spec) -> Any:
    """Import the code that the job was planned with; its settings, in the type that the stage
    names. What is edited later is neither run by it nor makes its result another's."""
    checkout.check(Path())
    hints = typing.get_type_hints(_stage(spec).run)
    (kind,) = typing.get_args(hints["context"])
    settings = TypeAdapter(kind).validate_python(spec["settings"])
    _require_code(spec, settings)
    code.load(spec["code"])
    # What was edited while it was imported may have been imported.
    _require_code(spec, settings)
    return settings


def _require_code(spec: Spec, settings: Any) -> None:
    found = code.program().code(code.roots(spec["stage"], settings))
    here = {"code": found.modules, "libraries": versions(found.libraries, spec["libraries"])}
    for reason in freshness.differences({key: spec[key] for key in here}, here):
        raise Problem(f"{reason} since the job was planned; run the same command again")


def _give_back(result: Manifest, out: Path) -> None:
    """Move dropped files to their place; what else there is stays as it is."""
    known = manifest.read(result.path)
    if known.text() != result.text():
        raise Problem(
            f"made again, {result.folder} came out different from its manifest (another processor "
            f"or library?); to take what comes out now, rm {result.path} and build again"
        )
    for name in known.dropped():
        place = result.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(out / name, place)
    known.forget_dropped()
