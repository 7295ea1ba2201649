"""Public models, with what a scale with the hub needs for them, from config/families.yaml.

Steps, tokens and learning rates of a checkpoint follow from its revision's name and the family's
schedule, in real steps.
"""

import re
from collections.abc import Mapping
from typing import TypedDict

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import (
    FILE,
    Families,
    Family,
    Later,
    Phase,
    Pretraining,
    Release,
    check_length,
    first_of,
    real_model,
    trunk_of,
)
from ptq_dynamics.config.models import ModelShape
from ptq_dynamics.config.public import DeviceMap, Dtype, Public, PublicRun, PublicStage, Released
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.hub.lock import TOKENIZER_KEY, Entry, Lock, code_key
from ptq_dynamics.train import schedules
from ptq_dynamics.train.fetch import TrustedCode
from ptq_dynamics.train.schedules import Schedule

UNKNOWN = f"{FILE} names no revisions of it"


def settle(
    families: Families, scale: Scale, file: str, lock: Lock
) -> tuple[Scale, dict[str, Public], dict[str, str]]:
    """The scale of a file with the families' models, each with a corpus of its tokenizer; their
    public runs by name; and why there are none of others.

    Raises `Problem` when the families do not fit together.
    """
    main = scale.corpora["main"]
    if not isinstance(main, DatasetsCorpus):
        raise Problem(
            f"{file}: has neither miniatures, which small scales train in place of public models, "
            "nor corpora.main of source datasets, of which those have their text; give it one"
        )
    models, corpora = dict[str, ModelShape](), dict[str, DatasetsCorpus]()
    for name, family in families.families.items():
        if name in scale.models or name in scale.corpora:
            raise Problem(
                f"{FILE}: families.{name} has the name of a model or corpus of "
                f"{scale.description}; rename it"
            )
        if family.repository is not None:
            context = scale.models["main"].context
            corpus = family.reads_as or name
            models[name] = real_model(families, name, context=context, corpus=corpus)
        if family.repository is not None and family.tokenized is not None:
            tokenizer = lock.of(family.repository).get(TOKENIZER_KEY)
            corpora[name] = main.model_copy(
                update={
                    "tokenizer": family.repository,
                    "tokenizer_revision": tokenizer.commit if tokenizer else None,
                    "vocabulary": family.vocabulary,
                    "train": 0,
                }
            )
    found, unknown = dict[str, Public](), dict[str, str]()
    for name, run in families.runs.items():
        own = run.release_of if isinstance(run, Release) else first_of(families, name, run).family
        family = families.families[own]
        if family.unreadable is not None:
            unknown[name] = family.unreadable
            continue
        if family.repository is None or not run.revisions:
            unknown[name] = UNKNOWN
            continue
        locked = lock.of(family.repository)
        match run:
            case Release():
                found[name] = _release(own, family, lock, run)
            case Later():
                found[name] = _stage(families, family, locked, name, own, run)
            case _:
                found[name] = _run(families, name, family, locked, run)
    every = {"models": {**scale.models, **models}, "corpora": {**scale.corpora, **corpora}}
    return scale.model_copy(update=every), found, unknown


def _release(name: str, family: Family, lock: Lock, run: Release) -> Public:
    repository = run.repository or family.repository
    assert repository is not None
    locked = lock.of(repository)
    ends = {each: Released(None, None, locked.get(each)) for each in run.revisions}
    common = _common(name, family, locked)
    return Public(revisions=ends, **common | {"repository": repository})


def _stage(
    families: Families,
    family: Family,
    locked: Mapping[str, Entry],
    called: str,
    name: str,
    run: Later,
) -> PublicStage:
    """What was released of a stage; only where the lengths of all that comes before are known, and
    its own, does it have steps."""
    place = f"{FILE}: runs.{called}"
    check_length(place, run, family)
    before, each = _tokens_before(families, run), family.tokens_per_step
    schedule, first = None, 0
    if before is not None and run.tokens is not None:
        first, steps = round(before / each), round(run.tokens / each)
        peak, warmup = run.peak_lr, round(run.warmup * steps)
        schedule = schedules.Stage("stage", peak, warmup, run.floor * peak, first, steps, run.stage)
    revisions = dict[str, Released]()
    for revision in run.revisions:
        found = re.search(family.step_in, revision)
        step = tokens = None
        if schedule is not None and found is not None and (found[1] or "").isdecimal():
            done = int(found[1]) * family.steps_each
            step, tokens = first + done, round((before or 0) + done * each)
            if step > first + round((run.tokens or 0) / each):
                raise Problem(
                    f"{place}.revisions has {revision!r}, step {step:,}, beyond the end of its "
                    f"{run.tokens:g} tokens; correct one"
                )
            if any(step <= (other.step or 0) for other in list(revisions.values())[-1:]):
                raise Problem(
                    f"{place}.revisions has {revision!r} after one of the same or a later step; "
                    "sort them"
                )
        revisions[revision] = Released(step, tokens, locked.get(revision))
    common = _common(name, family, locked)
    unknown = "; ".join(filter(None, (run.uncertain, family.uncertain))) or None
    return PublicStage(
        **common | {"unknown": unknown}, revisions=revisions, called=run.stage, schedule=schedule
    )


def _tokens_before(families: Families, run: Later) -> float | None:
    """Tokens up to where a stage begins, if those of all before are known."""
    found = families.runs[run.after]
    match found:
        case Pretraining():
            return found.tokens
        case Phase():
            return found.tokens + trunk_of(families, run.after, found).tokens
        case Later():
            before = _tokens_before(families, found)
            return None if before is None or found.tokens is None else before + found.tokens
    return None


def _run(
    families: Families,
    name: str,
    family: Family,
    locked: Mapping[str, Entry],
    run: Pretraining | Phase,
) -> PublicRun:
    place, trunk = f"{FILE}: runs.{name}", first_of(families, name, run)
    before = round(trunk.tokens / family.tokens_per_step)
    revisions = dict[str, Released]()
    for revision in run.revisions:
        found = re.search(family.step_in, revision)
        if found is None or found[1] is None:
            raise Problem(
                f"{place}.revisions has {revision!r}, in which step_in of the family finds no step"
            )
        if not found[1].isdecimal():
            raise Problem(
                f"{place}.revisions has {revision!r}, in which step_in of the family finds "
                f"{found[1]!r}, which is no step"
            )
        step = int(found[1]) * family.steps_each
        if isinstance(run, Phase):
            step += before if run.restarts else 0
            if step < before:
                raise Problem(
                    f"{place}.revisions has {revision!r}, step {step:,}, before the end of its "
                    f"trunk at {before:,}; move it there, or say restarts"
                )
            tokens = trunk.tokens + (step - before) * family.tokens_per_step * run.batch
        else:
            tokens = step * family.tokens_per_step
        if any(step <= (other.step or 0) for other in list(revisions.values())[-1:]):
            raise Problem(
                f"{place}.revisions has {revision!r} after one of the same or a later step; sort "
                "them"
            )
        revisions[revision] = Released(step, round(tokens), locked.get(revision))
    if not any(each.step for each in revisions.values()):
        raise Problem(f"{place}.revisions has none of a step after the first; name one")
    return PublicRun(
        **_common(trunk.family, family, locked),
        revisions=revisions,
        trunk=run.trunk if isinstance(run, Phase) else None,
        schedule=_schedule(family, trunk, run),
        earlier=_schedule(family, trunk, trunk),
        first=before if isinstance(run, Phase) else 0,
        batch=family.tokens_per_step * (run.batch if isinstance(run, Phase) else 1),
        optimizer=family.optimizer or families.defaults.optimizer,
        averaged=run.averaged,
    )


class _Common(TypedDict):
    """What all that is released of a family has alike."""

    family: str
    repository: str
    model: str
    convert: bool
    format: str | None
    code: TrustedCode | None
    dtype: Dtype
    device_map: DeviceMap
    unknown: str | None
    uncertain_rate: bool


def _common(name: str, family: Family, locked: Mapping[str, Entry]) -> _Common:
    assert family.repository is not None
    return _Common(
        family=family.label,
        repository=family.repository,
        model=name,
        convert=family.convert,
        format=family.format,
        code=_code(family, locked),
        dtype=family.dtype,
        device_map=family.device_map,
        unknown=family.uncertain,
        uncertain_rate=family.other_peak_lr is not None,
    )


def _code(family: Family, locked: Mapping[str, Entry]) -> TrustedCode | None:
    if family.code is None:
        return None
    entry = locked.get(code_key(family.code))
    return TrustedCode(commit=family.code, files=entry.files if entry else None)


def _schedule(family: Family, trunk: Pretraining, run: Pretraining | Phase) -> Schedule:
    """The learning rate by real steps."""
    peak, warmup = trunk.peak_lr or family.peak_lr, family.warmup
    steps = round(trunk.tokens / family.tokens_per_step)
    whole: Schedule = schedules.Constant("constant", peak, warmup)
    if trunk.schedule == "cosine":
        stop = round((trunk.horizon or trunk.tokens) / family.tokens_per_step)
        whole = schedules.Cosine("cosine", peak, warmup, trunk.floor * peak, stop)
    if isinstance(run, Pretraining):
        return whole
    each = family.tokens_per_step * run.batch
    start = steps + round(run.steady / each)
    length, floor = round((run.tokens - run.steady) / each), run.floor * peak
    if trunk.schedule == "constant":
        return schedules.Wsd("wsd", peak, warmup, floor, start, length, run.shape)
    rate = schedules.learning_rate(whole, steps)
    return schedules.Anneal("anneal", peak, warmup, rate, floor, start, length, run.shape)
