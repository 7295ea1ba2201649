"""Public models at a scale with the hub."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.families import FILE, Families, Family, Later, Phase, Pretraining, Release
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.hub.lock import Entry, Lock, Wanted
from ptq_dynamics.hub.own_rates import UNKNOWN
from ptq_dynamics.plan.planned import Basis, Origin, PlannedTrajectory, TrainedShape
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.schedules import Schedule
from ptq_dynamics.train.schedules.constant import Constant
from ptq_dynamics.train.schedules.cosine import Cosine
from ptq_dynamics.train.schedules.stage import StageSchedule
from ptq_dynamics.train.schedules.wsd import Wsd
from ptq_dynamics.trajectories.fetch import FetchSettings, Revision
from ptq_dynamics.trajectories.local import LocalSettings
from ptq_dynamics.trajectories.trajectory import Checkpoint, Point


@dataclass(frozen=True, kw_only=True)
class Public:
    """Checkpoints of a repository, by the names of its revisions, or own ones (`is_own`). With
    `skip`, matrices that a quantizer does not support stay in full precision. `branched` and
    `averaged` are those of a `PlannedTrajectory`."""

    origin: Origin
    repository: str
    checkpoints: Mapping[str, Checkpoint]
    locked: Mapping[str, Entry] = field(default_factory=dict)
    model: str
    convert: bool = False
    format: str | None = None
    schedule: Schedule | None = None
    branched: tuple[str, int] | None = None
    averaged: tuple[str, ...] = ()
    is_own: bool = False
    skip: bool = False

    def sources(self) -> Mapping[str, str]:
        """Return its source trajectories: none."""
        return {}

    def settings(self, names: Iterable[str], parameters: int) -> FetchSettings | LocalSettings:
        """Return settings of the job that downloads some checkpoints."""
        fetched = list[Revision]()
        for name in names:
            entry = self.locked.get(name)
            commit, files = (entry.commit, entry.files) if entry else (None, ())
            checkpoint = self.checkpoints[name]
            if self.is_own:  # options and other checkpoints tell the rest
                checkpoint = Checkpoint(name, checkpoint.step, None, None, UNKNOWN)
            fetched.append(Revision(checkpoint=checkpoint, commit=commit, files=files))
        return FetchSettings(
            repository=self.repository,
            revisions=tuple(fetched),
            parameters=parameters,
            convert=self.convert,
            format=self.format,
        )


@dataclass(frozen=True, kw_only=True)
class PublicRun(Public):
    """A released run, or a branch of another, whose schedule applies `earlier`, before the step
    `first`. `batch` is in tokens."""

    first: int
    schedule: Schedule
    earlier: Schedule
    batch: float
    optimizer: Optimizer


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedRelease(PlannedTrajectory):
    """A public model, whose checkpoints are those of its revisions."""

    entry: Public

    @cached_property
    def checkpoints(self) -> list[Point]:
        """A checkpoint for each revision."""
        return [Point(name, point.step) for name, point in self.entry.checkpoints.items()]

    @property
    def planned_checkpoints(self) -> tuple[Checkpoint, ...]:
        """Own checkpoints, since options may give their rates and tokens."""
        return tuple(self.entry.checkpoints.values()) if self.entry.is_own else ()


def plan_release(name: str, basis: Basis, entry: Public) -> PlannedRelease:
    """Return a public model, or own checkpoints. None is trained, so that seeds only choose random
    vectors."""
    model = basis.scale.models[entry.model]
    return PlannedRelease(
        name=name,
        basis=basis,
        entry=entry,
        shape=TrainedShape(model, model.corpus, model.context, None, 1),
        origin=entry.origin,
        seeds=basis.seeds[:1] if entry.is_own else (0,),
        branched=entry.branched,
        averaged=entry.averaged,
    )


def with_releases(
    families: Families, scale: Scale, file: str, lock: Lock
) -> tuple[Scale, dict[str, Public], dict[str, str]]:
    """Return the scale with the families' models, public models by name, and reasons for gaps."""
    main = scale.corpora.get("main")
    if not isinstance(main, DatasetsCorpus):
        small = "miniatures to train models in place of public ones"
        raise Problem(f"{file}: set {small}, or corpora.main with source datasets")
    models, corpora = dict[str, Architecture](), dict[str, DatasetsCorpus]()
    require(f"{file}: models", "model", ["main"], scale.models)
    context = scale.models["main"].context
    for name, family in families.families.items():
        if family.repository is None:
            continue
        reading = {"context": context, "corpus": family.reads_as or name}
        models[name] = family.model.model_copy(update=reading)
        if family.reads_as is None:
            tokenizer = lock.get(family.repository, {}).get("tokenizer")
            changed = {"tokenizer": family.repository, "vocabulary": family.vocabulary, "train": 0}
            changed["tokenizer_revision"] = tokenizer.commit if tokenizer else None
            corpora[name] = main.model_copy(update=changed)
    public, unknown = dict[str, Public](), dict[str, str]()
    for name, run in families.runs.items():
        family = families.families[families.family_of(name)]
        if family.unreadable is not None or family.repository is None or not run.revisions:
            unknown[name] = family.unreadable or f"{FILE} names no revisions of it"
        else:
            public[name] = _public(families, name, family, lock)
    every = {"models": {**scale.models, **models}, "corpora": {**scale.corpora, **corpora}}
    return scale.model_copy(update=every), public, unknown


def _public(families: Families, name: str, family: Family, lock: Lock) -> Public:
    run, before = families.runs[name], families.tokens_before(name)
    repository = (isinstance(run, Release) and run.repository) or family.repository or ""
    uncertain = (run.uncertain if isinstance(run, Later) else None, family.uncertain)
    words = "; ".join(filter(None, uncertain)) or None
    called = run.stage if isinstance(run, Later) else "released"
    public = Public(
        origin=Origin(family.label, words, family.other_peak_lr is not None),
        repository=repository,
        checkpoints={n: Checkpoint(n, None, None, None, called) for n in run.revisions},
        locked=lock.get(repository, {}),
        model=families.family_of(name),
        convert=family.convert,
        format=family.format,
    )
    # Steps need the lengths of the run and of all runs before.
    if isinstance(run, Release) or run.tokens is None or before is None:
        return public
    place = f"{FILE}: runs.{name}"
    first = round(before / family.tokens_per_step)
    if isinstance(run, Later):
        steps, peak = round(run.tokens / family.tokens_per_step), run.peak_lr
        schedule = StageSchedule(
            kind="stage",
            peak=peak,
            warmup=round(run.warmup * steps),
            floor=run.floor * peak,
            start=first,
            length=steps,
            name=run.stage,
        )
        checkpoints = dict(_checkpoints(place, run, family, before, schedule, schedule))
        return replace(public, checkpoints=checkpoints, schedule=schedule)
    trunk, averaged = families.first(name)[1], run.averaged if isinstance(run, Phase) else ()
    require(f"{place}.averaged", "revision of it", averaged, run.revisions)
    schedules = _schedule(family, trunk, trunk), _schedule(family, trunk, run)
    located = {
        "checkpoints": dict(_checkpoints(place, run, family, before, *schedules)),
        "branched": (run.trunk, first) if isinstance(run, Phase) else None,
        "first": first,
        "schedule": schedules[1],
        "earlier": schedules[0],
        "batch": family.tokens_per_step * run.batch,
        "optimizer": family.optimizer,
        "averaged": averaged,
    }
    return PublicRun(**vars(public) | located)


def _checkpoints(
    place: str,
    run: Pretraining | Phase | Later,
    family: Family,
    before: float,
    earlier: Schedule,
    schedule: Schedule,
) -> Iterator[tuple[str, Checkpoint]]:
    """Yield the checkpoints of revisions; `before` are the tokens before the first step, and
    `earlier` is the schedule before it."""
    batch, first = family.tokens_per_step * run.batch, round(before / family.tokens_per_step)
    restarts = isinstance(run, Later) or (isinstance(run, Phase) and run.restarts)
    offset, last = first if restarts else 0, first - 1
    for name in run.revisions:
        number = str(next(iter(family.step_in.findall(name)), ""))
        if number.isdecimal():
            step = int(number) * family.steps_each + offset
            if step <= last:
                before_it = f"step {last:,} of the trunk or of the revision before"
                why = f"step {step:,}, after {before_it}; sort them, or set restarts"
                raise Problem(f"{place}.revisions has {name!r}, {why}")
            rate = (earlier if step < first else schedule).learning_rate(step)
            tokens = round(before + (step - first) * batch)
            yield name, Checkpoint(name, step, tokens, rate, schedule.phase(step))
            last = step
        elif isinstance(run, Later):
            yield name, Checkpoint(name, None, None, None, run.stage)
        else:
            raise Problem(f"{place}.revisions has {name!r}, where step_in finds no step")


def _schedule(family: Family, trunk: Pretraining, run: Pretraining | Phase) -> Schedule:
    batch, peak = family.tokens_per_step, trunk.peak_lr or family.peak_lr
    warmup = family.warmup
    schedule: Schedule = Constant(kind="constant", peak=peak, warmup=warmup)
    if trunk.schedule == "cosine":
        stop = round((trunk.horizon or trunk.tokens) / batch)
        floor = trunk.floor * peak
        schedule = Cosine(kind="cosine", peak=peak, warmup=warmup, floor=floor, stop=stop)
    if isinstance(run, Pretraining):
        return schedule
    steps, steady = round(trunk.tokens / batch), run.steady or 0
    batch *= run.batch
    return Wsd(
        kind="wsd",
        peak=peak,
        warmup=warmup,
        floor=run.floor * peak,
        start=steps + round(steady / batch),
        length=round((run.tokens - steady) / batch),
        shape=run.shape,
        rate=None if trunk.schedule == "constant" else schedule.learning_rate(steps),
    )


def to_lock(entries: Iterable[object], scale: Scale) -> Iterator[Wanted]:
    """Yield the checkpoints that a scale downloads, and the tokenizers of their last revisions."""
    publics = (entry for entry in entries if isinstance(entry, Public))
    every = ((one.step or 0, n, p.repository) for p in publics for n, one in p.checkpoints.items())
    last = dict[str, str]()
    for _, name, repository in sorted(every):
        yield Wanted(repository, name)
        last[repository] = name
    for corpus in scale.corpora.values():
        if isinstance(corpus, DatasetsCorpus) and corpus.tokenizer in last:
            yield Wanted(corpus.tokenizer, last[corpus.tokenizer], "tokenizer")
