"""Which checkpoints in local folders `ptq-dynamics measure` measures: no defective ones, but those
that were deleted after they had been measured, which stay on the page."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from glob import escape
from pathlib import Path

from pydantic import TypeAdapter

from ptq_dynamics.base.checkpoints import CONFIG
from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import Local, Own
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.job import stale
from ptq_dynamics.engine.paths import MANIFEST, RECORD, beside
from ptq_dynamics.hub import folders
from ptq_dynamics.hub.files import FAST, SLOW, is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.own_checkpoints import described_model, sampled_folders
from ptq_dynamics.plan.planned import PlannedAverage
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.trajectories.local import LocalCheckpoint, LocalSettings

Shards = Set[tuple[str, str]]  # names of trajectories, and ids of their checkpoints


def without_defects(
    entry: Own, source: Local, known: Iterable[LocalCheckpoint]
) -> tuple[Local, list[str]]:
    """Return the folder of own checkpoints, which excludes defective ones by name, and a line for
    each model that is not measured. Values are read but of `known` checkpoints. Raises `Problem` if
    no checkpoint is left."""
    root, models, sound = Path(source.folder).resolve(), dict[Path, Given](), set[Path]()
    files = {(local.subfolder, local.files) for local in known}
    lines = folders.unmeasured(root, source.step, source.exclude)
    while True:
        chosen, defects = sampled_folders(entry, source), dict[Path, str]()
        for path, _ in chosen:
            if path not in sound:
                try:
                    models[path], present = _sound(path, root, entry)
                    if (str(path.relative_to(root)), present) not in files:
                        folders.require_finite(path)
                    sound.add(path)
                except Problem as problem:
                    defects[path] = str(problem)
        if len(defects) == len(chosen):
            raise Problem(defects[chosen[-1][0]])
        if not defects:
            defects = _foreign({path: models[path] for path, _ in chosen}, root)
        if not defects:
            return source, lines
        names = (escape(path.name) for path in defects)
        source = source.model_copy(update={"exclude": (*source.exclude, *names)})
        for path, why in defects.items():
            lines.append(f"{path} is left out: {why.replace(f'{path} ', 'it ', 1)}")


def _sound(folder: Path, root: Path, entry: Own) -> tuple[Given, tuple[LocalFile, ...]]:
    files = folders.files_of(folder, has_code=entry.trusts_code)
    model = described_model(folder, entry)
    if not any(is_of_tokenizer(file.name) for file in (*files, *folders.listed(root, bool))):
        mend = "save it there: tokenizer.save_pretrained"
        raise Problem(f"{folder} has no tokenizer, and {root} has none; {mend}")
    return model, files


def _foreign(models: Mapping[Path, Given], root: Path) -> dict[Path, str]:
    """Return why checkpoints do not fit the model and tokenizer that more than half of them have.
    Raises `Problem` if no tokenizer is that of more than half."""
    alike = {path: model.model_copy(update={"context": 0}) for path, model in models.items()}
    tokenizers = _tokenizers(models, root)
    others = _rare(alike, "holds another model") or _rare(tokenizers, "has another tokenizer")
    if not others and len({*tokenizers.values()}) > 1:
        # One checkpoint for each tokenizer.
        names = " and ".join({kind: path.name for path, kind in tokenizers.items()}.values())
        raise Problem(f"{names} have different tokenizers; leave one kind out with --exclude")
    return others


def _rare(kinds: Mapping[Path, Hashable], what: str) -> dict[Path, str]:
    for usual, count in Counter(kinds.values()).most_common(1):
        if 2 * count > len(kinds):
            why = f"it {what} than {next(path.name for path in kinds if kinds[path] == usual)}"
            return {path: why for path, kind in kinds.items() if kind != usual}
    return {}


def _tokenizers(checkpoints: Iterable[Path], root: Path) -> dict[Path, str]:
    """Return each checkpoint's vocabulary, or the run's if it has no tokenizer: tokenizer.json,
    else files that all have, else any file. Equal or unreadable ones are given by digest."""
    files = dict[Path, dict[str, Path]]()
    for path in checkpoints:
        has_own = any(is_of_tokenizer(file.name) for file in path.iterdir())
        places = {name: (path if has_own else root) / name for name in (FAST, *SLOW)}
        if present := {name: file for name, file in places.items() if file.is_file()}:
            files[path] = present
    common = {name for name in (FAST, *SLOW) if all(name in own for own in files.values())}
    chosen = {FAST} if FAST in common else common or {FAST, *SLOW}
    parts = {path: [own[name] for name in own if name in chosen] for path, own in files.items()}
    digests = {path: " ".join(map(sha256, own)) for path, own in parts.items()}
    contents = {digest: digest for digest in digests.values()}
    if len(contents) > 1:
        from ptq_dynamics.trajectories.ingredients import content_of  # loads torch

        for digest, path in {digest: path for path, digest in digests.items()}.items():
            with suppress(Problem, ValueError):
                contents[digest] = str([*map(content_of, parts[path])])
    return {path: contents[digest] for path, digest in digests.items()}


def linked(results: Path, folder: str) -> Iterator[tuple[Path, LocalCheckpoint]]:
    """Yield the checkpoints that were linked from a folder, each with the record of its job."""
    for path in sorted(results.glob(f"*/{RECORD}")):
        with suppress(Problem):
            settings = record.read(path).job["settings"]
            if settings.get("folder") == folder:
                known = TypeAdapter(LocalSettings).validate_python(settings)
                yield from ((path, checkpoint) for checkpoint in known.checkpoints)


def without_files(results: Path, source: Local) -> Iterator[LocalCheckpoint]:
    """Yield checkpoints that were linked from a folder which has them no more."""
    folder = Path(source.folder).resolve()
    present = folders.checkpoints(folder, source.step, source.exclude)
    times = {step or 0: (path / CONFIG).stat().st_mtime_ns for path, step in present.items()}
    for path, local in linked(results, source.folder):
        step, when = local.checkpoint.step or 0, max(file.changed for file in local.files)
        # A folder that was trained in again has other checkpoints than the records tell.
        is_of_run = step not in times and step < max(times)
        is_of_run &= not folders.is_excluded(local.subfolder, source.exclude)
        is_of_run &= all((at < step) == (time < when) for at, time in times.items())
        if is_of_run and not (folder / local.subfolder).exists():
            # Links to nothing are no damage once they are dropped.
            own = manifest.read(beside(path, MANIFEST))
            own.drop(own.files)
            yield local


def lost(plan: Plan) -> Shards:
    """Return the deleted checkpoints of a plan whose measurements are not up to date. If there are
    none, return the averages of deleted checkpoints of which this is true."""
    plan.targets()
    planned = plan.site.planned
    gone = {
        (name, local.checkpoint.id)
        for name, entry in plan.site.config.families.own.items()
        for local in entry.deleted
    }
    means = {
        (name, mean.id)
        for name, average in planned.items()
        if isinstance(average, PlannedAverage)
        for mean in average.means
        if any((average.sources[m.source].name, m.checkpoint) in gone for m in mean.members)
    }
    return _outdated(plan, gone) or _outdated(plan, means)


def _outdated(plan: Plan, shards: Shards) -> Shards:
    outdated = set[tuple[str, str]]()
    for job in [*plan.site.made.values()] if shards else ():
        shard = job.wildcards.get("trajectory", ""), job.wildcards.get("shard", "")
        if shard in shards - outdated and any(
            stale(needed.spec, needed.paths) for needed in plan.site.needed([job])
        ):
            outdated.add(shard)
    return outdated
