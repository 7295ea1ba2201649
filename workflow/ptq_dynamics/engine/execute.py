"""Execute one job under a lease in a hidden work folder, and publish its result.

The work folder has the whole result before the first file moves, so another process can complete
the work of a killed one. Files move first, then the record, and the manifest last."""

import datetime
import os
import shutil
import sys
import tempfile
import time
import traceback
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pydantic import TypeAdapter

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem, is_full_disk
from ptq_dynamics.engine import checkout, code, machine, manifest, record, subprocesses
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.engine.job import differences, restore_manifest, stale
from ptq_dynamics.engine.lease import held, take_devices
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.paths import ABSENT, RECORD, Paths, Purpose, Spec, beside
from ptq_dynamics.engine.record import Record

OUT, SCRATCH = "out", "scratch"  # below a work folder: what becomes the result, and states
DIFFERS = "it came out different in {} (another processor or library?)"


def execute(spec: Spec, purpose: Purpose = "build", devices: int = 0) -> int:
    """Run a job on `devices` GPUs; print an error in one line, and return the exit status. A job
    whose result is up to date only writes its manifest. To `restore` is to build dropped files
    again. To `compare` is to build the result again elsewhere; it must be equal."""
    paths, progress = Paths.of(spec), Progress(f"{spec['stage']} {spec['name']}")
    try:
        if purpose == "compare":
            take_devices(devices, progress.say)
            _compare(spec, paths, progress)
            return 0
        paths.folder.mkdir(parents=True, exist_ok=True)
        with held(paths.lease, progress.say) as require:
            _mend_times([str(paths.spec), *(p for group in spec["inputs"].values() for p in group)])
            if purpose == "restore":
                if not manifest.read(paths.manifest).dropped():
                    return 0
            elif not stale(spec, paths):
                restore_manifest(paths)
                # Work on dropped files stays, since it can go on.
                if not manifest.read(paths.manifest).dropped():
                    for folder in paths.works(record.read(paths.record).identity):
                        shutil.rmtree(folder, ignore_errors=True)
                return 0
            progress.log = paths.log.open("w", encoding="utf-8", buffering=1)  # line by line
            clock = time.monotonic()
            take_devices(devices, progress.say)
            _build(spec, paths, progress, require, purpose)
            # Also work of other specifications, which was kept because an edit may be undone.
            for folder in paths.works():
                shutil.rmtree(folder, ignore_errors=True)
            progress.say(f"done in {time.monotonic() - clock:.1f} s")
        return 0
    except (Exception, KeyboardInterrupt) as error:
        _complain(error, paths, progress)
        return 1


def _mend_times(inputs: Iterable[str]) -> None:
    """Set future times of inputs to the present; Snakemake refuses outputs older than inputs."""
    for path in inputs:
        with suppress(OSError):
            if os.stat(path).st_mtime > time.time():
                os.utime(path)


def _complain(error: BaseException, paths: Paths, progress: Progress) -> None:
    line = f"error: {progress.name}: {' '.join(_explain(error, paths).split())}\n"
    with suppress(OSError):  # the disk may be full
        sys.stderr.write(line)
        if progress.log is not None:
            if not isinstance(error, Problem | KeyboardInterrupt):
                traceback.print_exception(error, file=progress.log)
            progress.log.write(line)


def _explain(error: BaseException, paths: Paths) -> str:
    if isinstance(error, Problem):
        return f"{error} (log: {paths.log})"
    if isinstance(error, KeyboardInterrupt):  # torch's launcher of processes takes the signals
        return "interrupted; run the same command again to resume"
    if is_full_disk(error):
        return f"the disk is full; free some space (see {paths.folder}) and run the command again"
    return f"{type(error).__name__}: {error} (traceback in {paths.log})"


def _build(
    spec: Spec, paths: Paths, progress: Progress, require: Callable[[], None], purpose: Purpose
) -> None:
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    more = ("paper",) if spec["stage"].startswith("paper.") else ()  # read by that stage alone
    commit, context = machine.commit(*more), _read(spec, progress)
    work = take_over(paths, context.identity)
    if not is_prepared(work, paths):
        if not getattr(_stage(spec), "RESUMABLE", False):
            shutil.rmtree(work, ignore_errors=True)
        context.earlier = paths.folder
        made = _make(spec, context, work)
        seconds = time.monotonic() - clock
        account = record.describe(spec, context.inputs, made, commit, started, seconds)
        if purpose == "restore":
            require()
            known = record.read(paths.record)
            if not _difference(account, known):
                _put_back(made, work)
                return
            account = _second(account, known, paths.folder, work / OUT)
            progress.say(f"{account.second}; the next build repeats what reads this result")
        require()
        write_atomically(work / RECORD, account.text())
    require()
    publish(work, paths, record.read(work / RECORD))


def take_over(paths: Paths, identity: str) -> Path:
    """Return the folder of the lease's owner; the newest work of earlier owners moves there."""
    work = paths.work(identity)
    left = sorted(paths.works(identity), key=lambda path: path.stat().st_mtime)
    for older in left[:-1]:
        shutil.rmtree(older, ignore_errors=True)
    for newest in left[-1:]:
        os.replace(newest, work)
    return work


def is_prepared(work: Path, paths: Paths) -> bool:
    """Return whether an earlier process finished the work, and none of its files is lost. Files
    that it has moved already may have changed since."""
    try:
        files = record.read(work / RECORD).files
    except Problem:
        return False
    for name, entry in files.items():
        waiting, moved = work / OUT / name, paths.folder / name
        if waiting.exists():
            if waiting.stat().st_size != entry["size"]:
                return False
        elif not moved.is_file() or sha256(moved) != entry["sha256"]:
            return False
    return True


def publish(work: Path, paths: Paths, made: record.Record) -> None:
    """Remove the files of an earlier result, and move those of a finished one to their place. The
    caller has the lease."""
    shutil.rmtree(work / SCRATCH, ignore_errors=True)  # no job may resume once files leave `out`
    names = sorted({file.split("/")[0] for file in made.files})
    waiting = [name for name in names if (work / OUT / name).exists()]
    old = work / "old"
    shutil.rmtree(old, ignore_errors=True)
    old.mkdir()
    # These list the old files.
    for path in (paths.record, paths.manifest, beside(paths.manifest, ABSENT)):
        path.unlink(missing_ok=True)
    if paths.stem is None:
        for entry in paths.folder.iterdir():
            moved = entry.name in names and entry.name not in waiting
            if not moved and not entry.name.startswith(".") and entry != paths.spec:
                os.replace(entry, old / entry.name)  # another process may read a file there
    for name in waiting:
        os.replace(work / OUT / name, paths.folder / name)
    # The record in the work folder stays until all is done.
    write_atomically(paths.record, made.text())
    write_atomically(paths.manifest, made.manifest(paths.manifest).text())


def _compare(spec: Spec, paths: Paths, progress: Progress) -> None:
    """Build a result again in a temporary folder; `Problem` if it differs."""
    context, known = _read(spec, progress), record.read(paths.record)
    context.identity = known.carried
    with tempfile.TemporaryDirectory(prefix="ptq-dynamics-compare-") as folder:
        made = _make(spec, context, Path(folder))
    if what := _difference(made, known):
        raise Problem(DIFFERS.format(what))


def _difference(made: Manifest | Record, known: Record) -> str:
    names = sorted({*known.files, *made.files})
    differing = [name for name in names if known.files.get(name) != made.files.get(name)]
    return ", ".join(differing) or "its facts" * (known.facts != made.facts)


def _put_back(result: Manifest, work: Path) -> None:
    """Move the dropped files of a result to their place."""
    shutil.rmtree(work / SCRATCH, ignore_errors=True)  # as in `publish`
    for name in result.dropped():
        (result.folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(work / OUT / name, result.folder / name)
    beside(result.path, ABSENT).unlink(missing_ok=True)


def _second(made: Record, known: Record, first: Path, second: Path) -> Record:
    """The record of a result in the folder `second` that differs from the `first`: its inputs do,
    or it was built on a GPU, and its stage finds that both agree. Raises `Problem` otherwise."""
    if made.inputs != known.inputs:
        return replace(made, second="built again from other inputs")
    agree = getattr(_stage(made.job), "agree", None)
    if known.device.kind == "cpu" or agree is None:
        raise Problem(DIFFERS.format(_difference(made, known)))
    return replace(made, second=f"second build on a GPU: {agree(first, second)}")


def _read(spec: Spec, progress: Progress) -> Context[object]:
    """Return the context of a stage, without the folders to write to."""
    settings = _take_code(spec)
    inputs = {
        label: [manifest.read(Path(path), restore) for path in group]
        for label, group in spec["inputs"].items()
    }
    digests = {str(result.path): result.digest() for group in inputs.values() for result in group}
    identity = record.identity(spec, digests)
    return Context(spec["name"], settings, inputs, Path(), Path(), progress, identity=identity)


def _make(spec: Spec, context: Context[object], work: Path) -> Manifest:
    """Run the stage in folders of `work`; return the manifest of its files."""
    context.out, context.scratch = work / OUT, work / SCRATCH
    context.out.mkdir(parents=True, exist_ok=True)
    context.scratch.mkdir(exist_ok=True)
    facts = _stage(spec).run(context)
    return manifest.describe(context.out, Paths.of(spec).manifest, facts)


def _stage(spec: Spec) -> ModuleType:
    return import_module(f"{checkout.PACKAGE}.{spec['stage']}")


def settings_of(spec: Spec) -> object:
    """Return the settings of a job in the type that its stage's `run` names."""
    hints = typing.get_type_hints(_stage(spec).run, include_extras=True)
    (kind,) = typing.get_args(hints["context"])
    return TypeAdapter(kind).validate_python(spec["settings"])


def _take_code(spec: Spec) -> object:
    """Import the planned code, before later edits; return the settings."""
    checkout.require_own(Path())
    settings = settings_of(spec)
    code.import_modules(spec["code"])
    # An edit during the import may have been imported.
    present = code.program().code(code.roots(spec["stage"], settings))
    libraries = machine.versions(present.libraries, spec["libraries"])
    here = {"code": present.modules, "libraries": libraries}
    for reason in differences({"code": spec["code"], "libraries": spec["libraries"]}, here):
        raise Problem(f"{reason} since the job was planned; run the same command again")
    return settings


def restore(result: Manifest) -> None:
    """Build the dropped files of a result again, unless another process has done so meanwhile.
    Raises `Problem` if that fails or gives other bytes (`_second`)."""
    path = beside(result.path, RECORD)
    if not again(path, "restore"):
        raise Problem(
            f"the dropped files of {result.folder} could not be made again (see above); to rebuild "
            f"the whole result, rm {path} and run the build again"
        )


def again(path: Path, purpose: Purpose) -> bool:
    """Run the job of a record in its own process, with the recorded number of threads and
    processes, or on at most so many GPUs; return whether it succeeded. A failed job has printed its
    error."""
    made = record.read(path)
    names = {"OMP_NUM_THREADS", *(name for name in os.environ if name.endswith("_NUM_THREADS"))}
    environment = {**os.environ, **dict.fromkeys(names, str(made.threads))}
    on_cpu, count = made.device.kind == "cpu", str(made.processes)
    environment |= {"PTQ_DYNAMICS_PROCESSES": count if on_cpu else "", "PTQ_DYNAMICS_GPUS": count}
    command = [sys.executable, "-m", "ptq_dynamics.engine.run", str(path), f"--{purpose}"]
    command += ["--devices", "1"]  # a job that leases a GPU passes it on
    return subprocesses.run(command, environment, is_heard=True).returncode == 0
