"""Own checkpoints, in a local folder or on the hub: entries of `own` in families.yaml."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ptq_dynamics.base.checkpoints import CONFIG, forms, require_plain, weight_files
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import FILE, Local, Own, Remote
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.corpus.sources.own import OwnCorpus
from ptq_dynamics.hub import folders, own_rates
from ptq_dynamics.hub.files import COMMIT, is_code, is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile
from ptq_dynamics.hub.lock import Lock
from ptq_dynamics.hub.own_rates import UNKNOWN
from ptq_dynamics.plan.planned import Origin
from ptq_dynamics.plan.releases import Public
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.trajectories.local import LocalCheckpoint, LocalSettings
from ptq_dynamics.trajectories.trajectory import Checkpoint, step_id

T = TypeVar("T")
ALONE = "checkpoint"  # id of a checkpoint without a step


@dataclass(frozen=True, kw_only=True)
class LinkedCheckpoints(Public):
    """Own checkpoints with their files; a shared tokenizer has those `beside`."""

    local: Mapping[str, LocalCheckpoint]
    beside: tuple[LocalFile, ...]

    def settings(self, names: Iterable[str], parameters: int) -> LocalSettings:
        """Return settings of the job that links some checkpoints."""
        chosen = tuple(self.local[name] for name in names)
        has_own = all(any(is_of_tokenizer(f.name) for f in saved.files) for saved in chosen)
        beside = () if has_own else self.beside
        return LocalSettings(self.repository, chosen, beside, parameters)


def with_own(own: Mapping[str, Own], scale: Scale, lock: Lock) -> tuple[Scale, dict[str, Public]]:
    """Return a scale with the models and corpora of own checkpoints, and these by name."""
    models, corpora, public = dict(scale.models), dict(scale.corpora), dict[str, Public]()
    for name, entry in own.items():
        model = entry.model
        if isinstance(entry.checkpoints, Local):
            public[name], model = _local(name, entry, entry.checkpoints)
        else:
            public[name] = _remote(name, entry, entry.checkpoints, lock)
        if model is None:
            raise Problem(f"{FILE}: own.{name}.model is missing; ptq-dynamics measure writes it")
        context = min(scale.models["main"].context, model.context)
        models[name] = model.model_copy(update={"context": context, "corpus": name})
        corpora[name] = OwnCorpus.after(scale.corpora["main"], model.vocabulary, entry.bos)
    return scale.model_copy(update={"models": models, "corpora": corpora}), public


def _local(name: str, entry: Own, source: Local) -> tuple[LinkedCheckpoints, Given]:
    root = Path(source.folder).resolve()
    every = folders.checkpoints(root, source.step, source.exclude)
    chosen = _sampled(entry, list(every.items()))
    states = {path: folders.state(path) for path, _ in chosen}
    scheduled = {path: own_rates.scheduled(path) for path in every}
    saved = list(entry.deleted)
    for path, step in chosen:
        tokens = states[path].tokens or None
        id_ = ALONE if step is None else step_id(step)
        about = Checkpoint(id_, step, tokens, scheduled[path], UNKNOWN)
        files = folders.files_of(path, has_code=entry.trusts_code)
        saved.append(LocalCheckpoint(about, str(path.relative_to(root)), files))
    saved.sort(key=lambda local: local.checkpoint.step or 0)
    checkpoints = [local.checkpoint for local in saved]
    known = dict[int, float]()
    for path, step in reversed(chosen):
        # Names may have epochs or tokens instead of the steps of a log.
        if states[path].step in (None, step):
            # What an earlier checkpoint logged was written by its version.
            version = folders.json_object(path / CONFIG).get("transformers_version")
            known |= own_rates.logged(states[path], str(version))
    rates = [(checkpoint.step, checkpoint.lr) for checkpoint in checkpoints]
    rates += ((step, scheduled[path]) for path, step in every.items())
    known |= {step: rate for step, rate in rates if step is not None and rate is not None}
    own = LinkedCheckpoints(
        origin=Origin("own"),
        is_own=True,
        model=name,
        skip=entry.skip,
        repository=source.folder,
        checkpoints=_located(entry, checkpoints, known),
        local={local.checkpoint.id: local for local in saved},
        beside=folders.listed(root, is_of_tokenizer),
    )
    models = [described_model(path, entry) for path, _ in chosen]
    context = min(model.context for model in models)  # the context may grow along a run
    first, *others = (model.model_copy(update={"context": context}) for model in models)
    for (path, _), model in zip(chosen[1:], others, strict=True):
        if model != first:
            raise Problem(f"{path} and {chosen[0][0]} hold different models; name one run's folder")
    return own, entry.model or first


def _remote(name: str, entry: Own, source: Remote, lock: Lock) -> Public:
    checkpoints = [Checkpoint(n, step, None, None, UNKNOWN) for n, step in _on_hub(entry, source)]
    return Public(
        origin=Origin("own"),
        is_own=True,
        model=name,
        skip=entry.skip,
        repository=source.repository,
        checkpoints=_located(entry, checkpoints),
        locked=lock.get(source.repository, {}),
    )


def described_model(folder: Path, entry: Own) -> Given:
    """Return the model of a checkpoint; `Problem` if its files do not describe one."""
    from huggingface_hub import get_local_safetensors_metadata
    from safetensors import safe_open

    place, config = folder, folders.json_object(folder / CONFIG)
    try:
        for place in weight_files(folder):
            safe_open(place, "numpy")  # raises if the file is truncated
        place = folder
        tensors = forms(get_local_safetensors_metadata(folder))
        require_plain(folder, folder, tensors)
        code = [file.name for file in folders.listed(folder, is_code)]
        about = folders.about(folder, config, tensors, code if entry.trusts_code else None)
        return Given.model_validate(about)
    except Problem:
        raise
    # The libraries raise many types of errors.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise Problem(f"{place} cannot be read ({reason}); save the model again") from error


def sampled_checkpoints(entry: Own) -> Sequence[tuple[Path | str, int | None]]:
    """Return the folders or revisions to measure with their steps, the last included."""
    source = entry.checkpoints
    return sampled_folders(entry, source) if isinstance(source, Local) else _on_hub(entry, source)


def sampled_folders(entry: Own, source: Local) -> list[tuple[Path, int | None]]:
    """Return the folders to measure with their steps, the last included."""
    steps = folders.checkpoints(Path(source.folder).resolve(), source.step, source.exclude)
    return _sampled(entry, list(steps.items()))


def _on_hub(entry: Own, source: Remote) -> list[tuple[str, int | None]]:
    steps, by_step = list[tuple[str, int | None]](), dict[int, str]()
    for name in source.revisions:
        digits = "" if COMMIT.match(name) else next(iter(source.step.findall(name)), "")
        steps.append((name, step := int(digits) if digits.isdecimal() else None))
        if step is None and len(source.revisions) > 1 and not COMMIT.match(name):
            mend = r"add --exclude, or describe the names: --step 'my-(\d+)'"
            raise Problem(f"{source.repository}@{name} has no step in its name; {mend}")
        if step is not None and (other := by_step.setdefault(step, name)) != name:
            mend = "give --step another pattern, or --exclude one"
            raise Problem(f"{name} has the step of {other}; {mend}")
    return _sampled(entry, sorted(steps, key=lambda pair: pair[1] or 0))


def _sampled(entry: Own, checkpoints: list[T]) -> list[T]:
    return checkpoints[-entry.last if entry.last else 0 :][:: -entry.every][::-1]


def _located(
    entry: Own, saved: list[Checkpoint], known: Mapping[int, float] = {}
) -> dict[str, Checkpoint]:
    """Return checkpoints by id, with the tokens and rates of the entry, or as far as they are
    `known`."""
    located, steps = dict[str, Checkpoint](), [c.step for c in saved if c.step is not None]
    if isinstance(entry.rate, str):
        known = own_rates.in_table(entry.rate, steps)
    rates = own_rates.rates_and_phases(known)
    if isinstance(entry.rate, float):
        rates = {step: (entry.rate, "stable") for step in steps}
    for checkpoint in saved:
        step, tokens = checkpoint.step, checkpoint.tokens
        if step and entry.tokens_per_step:
            tokens = round(step * entry.tokens_per_step)
        rate, phase = rates.get(step, (None, UNKNOWN))
        located[checkpoint.id] = Checkpoint(checkpoint.id, step, tokens, rate, phase)
    return located
