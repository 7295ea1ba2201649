"""Public models, with what a scale with the hub needs for them, from config/families.yaml.

Steps, tokens and learning rates of a checkpoint follow from its revision's name and the family's
schedule, in real steps.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import (
    FILE,
    Families,
    Family,
    Later,
    Phase,
    Pretraining,
    Release,
)
from ptq_dynamics.config.public import Public, PublicRun, ReleasedRevision
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.hub.lock import TOKENIZER_KEY, Entry, Lock, Wanted
from ptq_dynamics.train import schedules
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.schedules import Schedule

UNKNOWN = f"{FILE} names no revisions of it"


def settle(
    families: Families, scale: Scale, file: str, lock: Lock
) -> tuple[Scale, dict[str, Any], dict[str, Public], dict[str, str]]:
    """The scale of a file with the families' models, each with a corpus of its tokenizer; no runs
    to train; the public models by name; and why there are none of others.

    Raises `Problem` when the families do not fit to the scale.
    """
    main = scale.corpora["main"]
    if not isinstance(main, DatasetsCorpus):
        raise Problem(
            f"{file}: has neither miniatures, which small scales train in place of public models, "
            "nor corpora.main of source datasets, of which those have their text; give it one"
        )
    models, corpora = dict[str, Architecture](), dict[str, DatasetsCorpus]()
    for name, family in families.families.items():
        if family.repository is None:
            continue
        context = scale.models["main"].context
        models[name] = families.model(name, context=context, corpus=family.reads_as or name)
        if family.reads_as is None:
            tokenizer = lock.get(family.repository, {}).get(TOKENIZER_KEY)
            changed = {
                "tokenizer": family.repository,
                "tokenizer_revision": tokenizer.commit if tokenizer else None,
                "vocabulary": family.vocabulary,
                "train": 0,
            }
            corpora[name] = main.model_copy(update=changed)
    found, unknown = dict[str, Public](), dict[str, str]()
    for name, run in families.runs.items():
        family = families.families[families.family_of(name)]
        if family.unreadable is not None:
            unknown[name] = family.unreadable
        elif family.repository is None or not run.revisions:
            unknown[name] = UNKNOWN
        else:
            found[name] = _public(families, name, family, lock)
    every = {"models": {**scale.models, **models}, "corpora": {**scale.corpora, **corpora}}
    return scale.model_copy(update=every), {}, found, unknown


def _public(families: Families, name: str, family: Family, lock: Lock) -> Public:
    run = families.runs[name]
    repository = getattr(run, "repository", None) or family.repository or ""
    locked = lock.get(repository, {})
    known = getattr(run, "uncertain", None), family.uncertain
    common: dict[str, Any] = {
        "family": family.label,
        "repository": repository,
        "model": families.family_of(name),
        "convert": family.convert,
        "format": family.format,
        "device_map": family.device_map,
        "unknown": "; ".join(filter(None, known)) or None,
        "uncertain_rate": family.other_peak_lr is not None,
    }
    # Of a stage, only where the lengths of all that comes before are known, and its own.
    unplaced = isinstance(run, Release) or run.tokens is None
    before = None if unplaced else families.tokens_before(name)
    if before is None or isinstance(run, Release):
        called = run.stage if isinstance(run, Later) else "released"
        nothing = {each: ReleasedRevision(None, None, locked.get(each)) for each in run.revisions}
        return Public(**common, revisions=nothing, called=called)
    common["revisions"] = dict(_revisions(f"{FILE}: runs.{name}", run, family, locked, before))
    if isinstance(run, Later):
        return Public(**common, called=run.stage, schedule=_stage(family, run, before))
    _, trunk = families.first(name)
    return PublicRun(
        **common,
        trunk=getattr(run, "trunk", None),
        schedule=_schedule(family, trunk, run),
        earlier=_schedule(family, trunk, trunk),
        first=round(before / family.tokens_per_step),
        batch=family.tokens_per_step * getattr(run, "batch", 1),
        optimizer=families.optimizer(family),
        averaged=run.averaged,
    )


def _revisions(
    place: str,
    run: Pretraining | Phase | Later,
    family: Family,
    locked: Mapping[str, Entry],
    before: float,
) -> Iterator[tuple[str, ReleasedRevision]]:
    """Step and tokens of every revision of what begins after so many tokens."""
    each, last = family.tokens_per_step * getattr(run, "batch", 1), -1
    first = round(before / family.tokens_per_step)
    is_stage = isinstance(run, Later)
    offset = first if is_stage or getattr(run, "restarts", False) else 0
    for name in run.revisions:
        place_of = f"{place}.revisions has {name!r}"
        found = family.step_in.search(name)
        if found is None or not (found[1] or "").isdecimal():
            if not is_stage:
                raise Problem(f"{place_of}, in which step_in of the family finds no step")
            yield name, ReleasedRevision(None, None, locked.get(name))
            continue
        step = int(found[1]) * family.steps_each + offset
        if step < first:
            raise Problem(
                f"{place_of}, step {step:,}, before the end of its trunk at {first:,}; move it "
                "there, or say restarts"
            )
        if is_stage and step > first + round((run.tokens or 0) / each):
            raise Problem(f"{place_of}, step {step:,}, beyond the end of its {run.tokens:g} tokens")
        if step <= last:
            raise Problem(f"{place_of} after one of the same or a later step; sort them")
        last = step
        yield name, ReleasedRevision(step, round(before + (step - first) * each), locked.get(name))


def _stage(family: Family, run: Later, before: float) -> Schedule:
    """The learning rate of a stage, by real steps."""
    steps, peak = round((run.tokens or 0) / family.tokens_per_step), run.peak_lr
    return schedules.StageSchedule(
        kind="stage",
        peak=peak,
        warmup=round(run.warmup * steps),
        floor=run.floor * peak,
        start=round(before / family.tokens_per_step),
        length=steps,
        name=run.stage,
    )


def _schedule(family: Family, trunk: Pretraining, run: Pretraining | Phase) -> Schedule:
    """The learning rate of a run, by real steps."""
    each, peak = family.tokens_per_step, trunk.peak_lr or family.peak_lr
    begin: dict[str, Any] = {"peak": peak, "warmup": family.warmup}
    whole: Schedule = schedules.Constant(kind="constant", **begin)
    if trunk.schedule == "cosine":
        stop = round((trunk.horizon or trunk.tokens) / each)
        whole = schedules.Cosine(kind="cosine", **begin, floor=trunk.floor * peak, stop=stop)
    if isinstance(run, Pretraining):
        return whole
    steps = round(trunk.tokens / each)
    each *= run.batch
    cooling: dict[str, Any] = {
        "floor": run.floor * peak,
        "start": steps + round(run.steady / each),
        "length": round((run.tokens - run.steady) / each),
        "shape": run.shape,
    }
    if trunk.schedule == "constant":
        return schedules.Wsd(kind="wsd", **begin, **cooling)
    rate = schedules.learning_rate(whole, steps)
    return schedules.Anneal(kind="anneal", **begin, **cooling, rate=rate)


def to_lock(publics: Iterable[Public], scale: Scale) -> Iterator[Wanted]:
    """What a scale with the hub takes from it: checkpoints, and tokenizers as of the last
    revisions."""
    last = dict[str, tuple[int, str]]()
    for public in publics:
        for name, released in public.revisions.items():
            yield Wanted(public.repository, name)
            place = (released.step or 0, name)
            last[public.repository] = max(last.get(public.repository, place), place)
    for corpus in scale.corpora.values():
        if isinstance(corpus, DatasetsCorpus) and corpus.tokenizer in last:
            yield Wanted(corpus.tokenizer, last[corpus.tokenizer][1], "tokenizer")
