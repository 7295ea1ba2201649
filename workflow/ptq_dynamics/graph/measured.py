"""What jobs of a scale took, by the records of its results."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.config import Config
from ptq_dynamics.corpus.settings import (
    DatasetsSettings,
    DialoguesSettings,
    EmbeddedSettings,
    FunctionsSettings,
    MixSettings,
)
from ptq_dynamics.curvature.settings import (
    ComponentsSettings,
    LandscapeSettings,
    SharpnessSettings,
    SpectrumSettings,
)
from ptq_dynamics.engine.current import account_of
from ptq_dynamics.engine.paths import records
from ptq_dynamics.engine.record import VERSION
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.resources import Measured, Resources
from ptq_dynamics.measure.settings import MeasureSettings
from ptq_dynamics.quantize.environment import EnvironmentSettings
from ptq_dynamics.train.average_settings import AverageSettings
from ptq_dynamics.train.fetch_settings import FetchSettings
from ptq_dynamics.train.settings import DropSettings, TrainSettings

# Records of a kind that are read at most, evenly among all: a median needs no more.
MOST = 128
# Settings of stages, whose modules would take seconds to import; of others, no estimate needs them.
SETTINGS: dict[str, Any] = {
    "train.train": TrainSettings,
    "train.fetch": FetchSettings,
    "train.average": AverageSettings,
    "train.drop": DropSettings,
    "quantize.environment": EnvironmentSettings,
    "measure.measure": MeasureSettings,
    "curvature.sharpness": SharpnessSettings,
    "curvature.spectrum": SpectrumSettings,
    "curvature.landscape": LandscapeSettings,
    "curvature.components": ComponentsSettings,
    "corpus.embedded": EmbeddedSettings,
    "corpus.datasets": DatasetsSettings,
    "corpus.mix": MixSettings,
    "corpus.dialogues": DialoguesSettings,
    "corpus.functions": FunctionsSettings,
}
NEEDLESS = ("figures.", "measure.collect", "measure.tasks.", "measure.comparison")


def resources(config: Config, root: Path = Path()) -> Resources:
    """Resources of jobs by what was measured, and else as assumed."""
    return Resources(config, measure(config, root))


def measure(config: Config, root: Path = Path()) -> dict[str, Measured]:
    """Times and memories of every stage that the scale's results have records of, as factors on
    what is assumed; `root` is the folder with results/ and figures/."""
    assuming, scale = Resources(config), config.choice.scale
    seconds, memories = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for folder in (root / "results" / scale, root / "figures" / scale):
        for told in _records(folder):
            job = _job(told["job"])
            # Of something that is not in the configuration any more, nothing is known.
            if job is None or not assuming.knows(job):
                continue
            if assuming.gpus(job) and told["device"]["kind"] == "cpu":
                continue
            if assumed := assuming.work(job).seconds:
                seconds[job.stage].append(told["seconds"] / assumed)
                memories[job.stage].append(told["peak_memory"] / assuming.memory(job))
    return {
        stage: Measured(median(found), max(memories[stage]), len(found))
        for stage, found in sorted(seconds.items())
    }


def _records(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Records below a folder, of each folder in it some; damaged ones say nothing."""
    kinds = defaultdict[str, list[Path]](list)
    for path in sorted(records(folder)):
        kind = path.relative_to(folder).parts[0] if path.parent != folder else ""
        kinds[kind].append(path)
    for found in kinds.values():
        for path in found[:: max(1, ceil(len(found) / MOST))]:
            told = account_of(path)
            if told is not None and told.get("version") == VERSION:
                yield told


def _job(said: Mapping[str, Any]) -> Job | None:
    """The job of a specification, with the settings that its work is told by."""
    stage, settings = str(said["stage"]), said["settings"]
    if not stage.startswith(NEEDLESS):
        kind = SETTINGS.get(stage)
        if kind is None:
            return None
        try:
            settings = _reader(kind).validate_python(settings)
        except ValidationError:
            return None
    return Job(stage, said["name"], said["folder"], said["inputs"], settings, said["stem"])


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
