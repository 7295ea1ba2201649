"""Checkpoints that were trained elsewhere, in a local folder or on the hub, and are measured as they
are: entries of `own` in families.yaml."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import FILE, Local, Model, Own, Remote
from ptq_dynamics.config.releases import Public, ReleasedRevision
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.corpus.sources.own import OwnCorpus
from ptq_dynamics.hub import folders
from ptq_dynamics.hub.files import CONFIG, is_of_tokenizer
from ptq_dynamics.hub.folders import STATE, LocalFile
from ptq_dynamics.hub.lock import Lock
from ptq_dynamics.train.timeline import Timeline
from ptq_dynamics.train.trajectory import step_id

# A rate is the peak where it is this close to it.
AT_PEAK = 0.999
# A checkpoint that is alone has no step.
ALONE = "checkpoint"


class Elsewhere(Public):
    """Checkpoints from elsewhere, with learning rate and phase by step, where they are known."""

    places: dict[int, tuple[float | None, str]]
    skip: bool

    def place(self, step: int | None) -> tuple[float | None, str]:
        """The learning rate at a step, and the phase."""
        return self.places.get(-1 if step is None else step, (None, self.called))

    def seeds_in(self, timeline: Timeline) -> tuple[int, ...]:
        """The first of the configuration: of random vectors that probe the curvature."""
        return timeline.seeds[:1]


class InFolder(Elsewhere):
    """Those in a local folder: `repository` is the folder, `subfolders` have the checkpoints, which
    consist of `files`; `beside` them are files of a tokenizer."""

    stage: ClassVar[str] = "train.local"

    subfolders: dict[str, str]
    files: dict[str, tuple[LocalFile, ...]]
    beside: tuple[LocalFile, ...]


def settle(own: Mapping[str, Own], scale: Scale, lock: Lock) -> tuple[Scale, dict[str, Public]]:
    """A scale with the models of checkpoints from elsewhere, each with a corpus in the tokens of its
    tokenizer; and these checkpoints by name."""
    models, corpora, found = dict(scale.models), dict(scale.corpora), dict[str, Public]()
    for name, entry in own.items():
        place = f"{FILE}: own.{name}"
        if isinstance(entry.checkpoints, Local):
            found[name] = _local(place, name, entry, entry.checkpoints)
        else:
            found[name] = _remote(name, entry, entry.checkpoints, lock)
        model = entry.model or _described(found[name])
        context = min(scale.models["main"].context, model.context)
        models[name] = model.model_copy(update={"context": context, "corpus": name})
        corpora[name] = OwnCorpus.after(scale.corpora["main"], model.vocabulary)
    return scale.model_copy(update={"models": models, "corpora": corpora}), found


def _described(found: Public) -> Model:
    """The model of the first checkpoint in a folder; `Problem` where its files do not say it."""
    from huggingface_hub import get_local_safetensors_metadata

    if not isinstance(found, InFolder):
        raise Problem(f"{FILE}: own.{found.model}.model is missing; ptq-dynamics measure writes it")
    folder = Path(found.repository, next(iter(found.subfolders.values())))
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    try:
        metadata = get_local_safetensors_metadata(folder)
    # Its own errors, and those of files that are cut off.
    except Exception as error:
        raise Problem(f"{folder} has no readable safetensors ({error}); save it again") from error
    return Model(**folders.about(config, metadata))


def _local(place: str, name: str, entry: Own, source: Local) -> InFolder:
    root = Path(source.folder)
    every = folders.checkpoints(root, source.step)
    chosen = _chosen(entry, [*every.items()])
    ids = {path: ALONE if step is None else step_id(step) for path, step in chosen}
    states = {path: _state(path) for path, _ in chosen}
    revisions = {}
    for path, step in chosen:
        seen = states[path].get("num_input_tokens_seen") or None
        tokens = round(step * entry.tokens_per_step) if step and entry.tokens_per_step else seen
        revisions[ids[path]] = ReleasedRevision(step, tokens, None)
    history = states[chosen[-1][0]].get("log_history", [])
    logged = {e["step"]: e["learning_rate"] for e in history if "learning_rate" in e}
    rates = _rates(place, entry.rate, logged)
    tokenizer = {path.name for path in root.iterdir() if is_of_tokenizer(path.name)}
    about = {each: (root / each).stat() for each in sorted(tokenizer)}
    return InFolder(
        **_common(name, entry),
        repository=source.folder,
        revisions=revisions,
        places=_places(rates, [step for _, step in chosen if step is not None]),
        subfolders={ids[path]: str(path.relative_to(root)) for path, _ in chosen},
        files={ids[path]: folders.files(path) for path, _ in chosen},
        beside=tuple(LocalFile(n, a.st_size, a.st_mtime_ns) for n, a in about.items()),
    )


def _remote(name: str, entry: Own, source: Remote, lock: Lock) -> Elsewhere:
    steps = {each: source.step.search(each) for each in source.revisions}
    numbers = [(each, int(found[1]) if found else None) for each, found in steps.items()]
    revisions = {}
    for each, step in _chosen(entry, sorted(numbers, key=lambda pair: pair[1] or 0)):
        tokens = round(step * entry.tokens_per_step) if step and entry.tokens_per_step else None
        locked = lock.get(source.repository, {}).get(each)
        revisions[each] = ReleasedRevision(step, tokens, locked)
    rates = _rates(f"{FILE}: own.{name}", entry.rate, {})
    known = [each.step for each in revisions.values() if each.step is not None]
    places = _places(rates, known)
    return Elsewhere(
        **_common(name, entry), repository=source.repository, revisions=revisions, places=places
    )


def _common(name: str, entry: Own) -> dict[str, Any]:
    nothing = dict.fromkeys(("unknown", "format"))
    about = {"family": entry.label, "model": name, "called": ALONE, "skip": entry.skip}
    return {**nothing, **about, "convert": False, "uncertain_rate": False}


def _chosen(entry: Own, every: list[Any]) -> list[Any]:
    if entry.last is not None:
        every = every[-entry.last :]
    # Backwards, so that the last one is among them.
    return every[:: -entry.every][::-1]


def _state(folder: Path) -> dict[str, Any]:
    path = folder / STATE
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _rates(place: str, rate: float | str | None, logged: dict[int, float]) -> dict[int, float]:
    """Learning rates by step: one for all steps has step 0 alone."""
    if not isinstance(rate, str):
        return logged if rate is None else {0: rate}
    try:
        with Path(rate).open(encoding="utf-8", newline="") as file:
            return {int(row["step"]): float(row["lr"]) for row in csv.DictReader(file)}
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise Problem(
            f"{place}.rate: {rate} is no CSV file with the columns step and lr ({error})"
        ) from None


def _places(rates: Mapping[int, float], steps: list[int]) -> dict[int, tuple[float | None, str]]:
    """Learning rate, between known steps along a line, and phase at some steps."""
    if not rates or not steps:
        return {}
    import numpy as np

    known = sorted(rates)
    values = [rates[step] for step in known]
    peak = max(values)
    at_peak = [step for step, value in zip(known, values, strict=True) if value >= AT_PEAK * peak]
    found = dict[int, tuple[float | None, str]]()
    # A cosine leaves its peak at once.
    after = "cooldown" if len(at_peak) > 1 else "decay"
    for step, lr in zip(steps, np.interp(steps, known, values).tolist(), strict=True):
        phase = "stable" if step <= at_peak[-1] or len(rates) == 1 else after
        found[step] = lr, "warmup" if step < at_peak[0] else phase
    return found
