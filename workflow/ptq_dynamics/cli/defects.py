"""Defective checkpoints in local folders, which `ptq-dynamics measure` leaves out."""

from collections import Counter
from collections.abc import Iterable, Mapping
from glob import escape
from pathlib import Path

from ptq_dynamics.base.checkpoints import CONFIG
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.families import Local, Own
from ptq_dynamics.hub import folders, formats
from ptq_dynamics.hub.files import is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile
from ptq_dynamics.plan.own_checkpoints import described_model, sampled_folders
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.trajectories.local import LocalCheckpoint


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
            defects = _foreign({path: models[path] for path, _ in chosen})
        if not defects:
            return source, lines
        names = (escape(path.name) for path in defects)
        source = source.model_copy(update={"exclude": (*source.exclude, *names)})
        for path, why in defects.items():
            lines.append(f"{path} is left out: {why.replace(f'{path} ', 'it ', 1)}")


def _sound(folder: Path, root: Path, entry: Own) -> tuple[Given, tuple[LocalFile, ...]]:
    files = folders.files_of(folder, has_code=entry.trusts_code)
    config = folders.json_object(folder / CONFIG)
    if (why := formats.unknown(config, () if entry.trusts_code else None)) is not None:
        raise Problem(f"{folder} {why}")
    model = described_model(folder, entry)
    if not any(is_of_tokenizer(file.name) for file in (*files, *folders.listed(root, bool))):
        mend = "save it there: tokenizer.save_pretrained"
        raise Problem(f"{folder} has no tokenizer, and {root} has none; {mend}")
    return model, files


def _foreign(models: Mapping[Path, Given]) -> dict[Path, str]:
    """Return why checkpoints do not fit the model that more than half of them hold."""
    alike = {path: model.model_copy(update={"context": 0}) for path, model in models.items()}
    ((usual, count),) = Counter(alike.values()).most_common(1)
    if 2 * count <= len(alike):
        return {}
    why = f"it holds another model than {next(p.name for p in alike if alike[p] == usual)}"
    return {path: why for path, model in alike.items() if model != usual}
