"""How large downloads and results are, in bytes."""

from ptq_dynamics.config import Config
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.models import FLOAT32, Model, Models
from ptq_dynamics.measure.settings import MeasureSettings
from ptq_dynamics.train.average_settings import (
    AverageSettings,
    LastSettings,
    LawaSettings,
    LineSettings,
    MergeSettings,
    TailsSettings,
)
from ptq_dynamics.train.fetch_settings import FetchSettings
from ptq_dynamics.train.settings import TrainSettings

# A training state, in checkpoints: weights and two moments.
STATE = 3
# Bytes of a result's manifest, record and tables.
FILES = 30_000
# Words that two bytes of a token file tell apart.
WORD = 1 << 16


def averaged(settings: AverageSettings) -> list[int]:
    """How many checkpoints are in each of some averages."""
    match settings:
        case LawaSettings(checkpoints=checkpoints, window=window):
            return [window] * len(checkpoints)
        case TailsSettings(tails=tails):
            return [len(tail.steps) for tail in tails]
        case LineSettings(points=points):
            return [2] * len(points)
        case MergeSettings(ingredients=ingredients):
            return [len(ingredients)]
        case LastSettings(windows=windows):
            return [len(window) for window in windows]


def fetched(settings: FetchSettings, model: Model) -> int:
    """Bytes of a job's downloads: as the lock has them, or else by the parameters."""
    return sum(
        sum(file.size for file in revision.files) if revision.commit else model.size
        for revision in settings.revisions
    )


class Sizes:
    """The sizes of a scale's results, by the settings of their jobs."""

    def __init__(self, config: Config) -> None:
        self._config, self._models = config, Models(config)

    def of(self, job: Job) -> float:
        """Bytes of a result."""
        match job.settings:
            case TrainSettings() as settings:
                each = self._model(job).size
                saved = len(settings.checkpoint_steps) + STATE * len(settings.state_steps)
                return FILES + saved * each
            case FetchSettings() as settings:
                return FILES + fetched(settings, self._model(job))
            case MeasureSettings(quantizer=quantizer) as settings:
                bytes_ = float(settings.blocks * FLOAT32)
                if settings.keep and quantizer is not None:
                    bytes_ += self._model(job).packed(quantizer.bits)
                return FILES + len(settings.checkpoints) * bytes_
        if job.stage == "train.average":
            return FILES + len(averaged(job.settings)) * self._model(job).size
        if job.stage.startswith("corpus.") and job.stage != "corpus.functions":
            return FILES + self._tokens(job)
        return FILES

    def beside(self, job: Job) -> float:
        """Bytes that a job needs beside its result for as long as it runs: the state that it would
        go on from, and the next one while it is written."""
        return 2 * STATE * self._model(job).size if isinstance(job.settings, TrainSettings) else 0

    def dropped(self, drop: Job, result: Job) -> float:
        """Bytes that a job frees which drops weights of a result."""
        whole = self.of(result) - FILES
        return whole - len(drop.settings.kept) * self._model(result).size

    def _model(self, job: Job) -> Model:
        return self._models.of(job.name.split()[0])

    def _tokens(self, job: Job) -> float:
        scale, settings = self._config.scale, job.settings
        sizes = getattr(settings, "sizes", None)
        tokens = sum(sizes.values()) if sizes else settings.train
        return float(tokens * (2 if scale.whole(job.name).vocabulary <= WORD else 4))
