"""How much work a job is: seconds and memory, from its settings and the size of its model, as the
scale assumes.

A forward pass takes 2 FLOP a parameter and token, a gradient three times that (Kaplan et al. 2020,
arXiv 2001.08361), a Hessian-vector product as much as three gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

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
    CurvatureSettings,
    LandscapeSettings,
    SharpnessSettings,
    SpectrumSettings,
)
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.models import FLOAT32, Model, Models
from ptq_dynamics.graph.sizes import STATE, averaged, fetched
from ptq_dynamics.measure.settings import Asked, MeasureSettings
from ptq_dynamics.quantize.calibration import CalibrationSettings
from ptq_dynamics.quantize.environment import EnvironmentSettings
from ptq_dynamics.quantize.methods import Quantizer
from ptq_dynamics.train.average_settings import AverageSettings
from ptq_dynamics.train.fetch_settings import FetchSettings
from ptq_dynamics.train.settings import DropSettings, TrainSettings

FORWARD = 2  # FLOP a parameter and token
GRADIENT = 3  # forward passes
PRODUCT = 3  # gradients
# Columns of all checkpoints that principal components take at once.
COLUMNS = 1 << 22


@dataclass(frozen=True)
class Work:
    """`seconds`, without those that a process needs to start. Bytes of memory, beside what a
    process has: `weights`, with gradients and moments where there are any, and `held`, what is
    computed with them; where there is a device, that holds both of what is `on_device`. `computes`:
    with as many threads as the scale says; `network`: it is the network that it waits for."""

    seconds: float
    weights: float = 0
    held: float = 0
    computes: bool = True
    on_device: bool = True
    network: bool = False


class Works:
    """The work of a scale's jobs."""

    def __init__(self, config: Config) -> None:
        self._config, self._assumed = config, config.scale.resources
        self.models = Models(config)

    def of(self, job: Job) -> Work:
        """That of one job."""
        match job.settings:
            case TrainSettings() as settings:
                return self._train(settings, self._model(job))
            case MeasureSettings() as settings:
                return self._measure(settings, self._model(job))
            case LandscapeSettings() as settings:
                model = self._model(job)
                grid = self._evaluate(settings, settings.side**2 + 3, 3, model)
                return _one_by_one(
                    [grid, self._quantize(settings.quantizer, settings.calibration, 1, model)]
                )
            case CurvatureSettings() as settings:
                return self._probe(settings, self._model(job))
            case ComponentsSettings() as settings:
                return self._components(settings)
            case FetchSettings() as settings:
                seconds = fetched(settings, self._model(job)) / self._assumed.network
                held = 2.0 * self._model(job).size if settings.convert or settings.format else 0
                return Work(seconds, held=held, computes=False, on_device=False, network=True)
            case EnvironmentSettings():
                seconds = self._assumed.environment
                return Work(seconds, computes=False, on_device=False, network=True)
            case DropSettings():
                return Work(0, computes=False, on_device=False)
        if job.stage == "train.average":
            return self._average(job.settings, self._model(job))
        return self._of_text(job)

    def _of_text(self, job: Job) -> Work:
        """What makes texts, tables and figures."""
        match job.settings:
            case DatasetsSettings() | EmbeddedSettings() as settings:
                tokens = sum(settings.sizes.values())
            case MixSettings() | DialoguesSettings() as settings:
                tokens = settings.train
            case FunctionsSettings():
                tokens = self._config.scale.whole(job.name).train
            case _:
                return Work(self._assumed.figure, computes=False, on_device=False)
        return Work(tokens / self._assumed.text, on_device=False)

    def _model(self, job: Job) -> Model:
        return self.models.of(job.name.split()[0])

    def _forward(self, model: Model, tokens: float, batches: float) -> float:
        """Seconds of forward passes over some tokens."""
        flop = FORWARD * model.parameters * tokens
        return flop / self._assumed.evaluation + batches * self._assumed.each_pass

    def _opening(self, model: Model) -> float:
        """Seconds to open a checkpoint."""
        return self._assumed.checkpoint + model.size / self._assumed.disk

    def _train(self, settings: TrainSettings, model: Model) -> Work:
        assumed, steps = self._assumed, settings.last - settings.first
        micro = settings.micro_batch or settings.batch
        tokens = steps * settings.batch * settings.context
        computing = GRADIENT * FORWARD * model.parameters * tokens / assumed.training
        computing += GRADIENT * steps * ceil(settings.batch / micro) * assumed.each_pass
        saved = len(settings.checkpoint_steps) + STATE * len(settings.state_steps)
        memory, at_once = assumed.memory, micro * settings.context
        return Work(
            computing / assumed.gpus + saved * model.size / assumed.disk,
            memory.training * model.parameters,
            at_once * memory.activations * model.width * model.layers + _logits(model, at_once),
        )

    def _measure(self, settings: MeasureSettings, model: Model) -> Work:
        count = len(settings.checkpoints)
        parts = [self._evaluate(settings, count, count, model)]
        if settings.quantizer is not None and settings.calibration is not None:
            parts.append(self._quantize(settings.quantizer, settings.calibration, count, model))
        return _one_by_one(
            [*parts, *(self._answer(asked, count, model) for asked in settings.tasks)]
        )

    def _quantize(
        self, quantizer: Quantizer, calibration: CalibrationSettings, count: int, model: Model
    ) -> Work:
        takes = getattr(self._assumed.quantization, quantizer.method)
        length = calibration.context
        if calibration.documents:
            length = min(self._assumed.document, length)
        tokens = calibration.sequences * length
        together = 1 if calibration.documents else calibration.batch
        once = self._forward(model, tokens, ceil(calibration.sequences / together))
        # Opened twice, and saved.
        each = takes.passes * once + takes.seconds + 3 * self._opening(model)
        return Work(
            count * each,
            self._assumed.memory.quantization * model.parameters,
            # What goes into the next layer, and what comes out of it.
            2 * FLOAT32 * tokens * model.width + _logits(model, together * length),
        )

    def _evaluate(
        self, settings: MeasureSettings | LandscapeSettings, times: int, opened: int, model: Model
    ) -> Work:
        tokens = settings.blocks * settings.context
        once = self._forward(model, tokens, ceil(settings.blocks / settings.batch))
        return Work(
            times * once + opened * self._opening(model),
            self._assumed.memory.evaluation * model.parameters,
            _logits(model, min(settings.batch, settings.blocks) * settings.context),
        )

    def _answer(self, asked: Asked, count: int, model: Model) -> Work:
        takes, tasks = self._assumed.tasks, self._config.scale.tasks
        # Tasks that are made hold just those that the scale says.
        documents = asked.documents or (tasks.documents if tasks else None)
        if documents is None:
            whole = takes.whole[asked.task]
            sequences, length = whole.sequences, min(whole.tokens, asked.context)
        else:
            sequences, length = takes.choices * documents, asked.context
        once = self._forward(model, sequences * length, ceil(sequences / asked.batch))
        return Work(
            count * (once + takes.seconds),
            self._assumed.memory.evaluation * model.parameters,
            _logits(model, min(asked.batch, sequences) * length),
        )

    def _probe(self, settings: CurvatureSettings, model: Model) -> Work:
        takes, most, memory = self._assumed.products, settings.max_iterations, self._assumed.memory
        products = 0.0
        match settings:
            case SharpnessSettings(trace_samples=samples):
                products = min(takes.sharpness, 2 * most) + samples
            case SpectrumSettings(eigenvalues=count):
                products = min(takes.eigenvalue * count, most)
        tokens = settings.sequences * settings.context
        tokens_in_all = GRADIENT * (1 + PRODUCT * products) * tokens
        passes = GRADIENT * (1 + products) * ceil(settings.sequences / settings.batch)
        once = self._forward(model, tokens_in_all, passes)
        at_once = settings.sequences if settings.keep_graph else settings.batch
        at_once *= settings.context
        graph = at_once * memory.activations * model.width * model.layers + _logits(model, at_once)
        return Work(
            len(settings.checkpoints) * (once + self._opening(model)),
            memory.probing * model.parameters,
            PRODUCT * graph,
        )

    def _components(self, settings: ComponentsSettings) -> Work:
        models = [
            self.models.of(path.trajectory) for path in settings.paths for _ in path.checkpoints
        ]
        opened, most = (
            sum(map(self._opening, models)),
            max((each.parameters for each in models), default=0),
        )
        flop = FORWARD * len(models) ** 2 * most
        held = FLOAT32 * len(models) * min(most, COLUMNS)
        return Work(opened + flop / self._assumed.evaluation, held=held, on_device=False)

    def _average(self, settings: AverageSettings, model: Model) -> Work:
        parts = averaged(settings)
        seconds = (sum(parts) + len(parts)) * model.size / self._assumed.disk
        seconds += len(parts) * self._assumed.checkpoint
        return Work(seconds, held=3 * FLOAT32 * model.parameters, on_device=False)


def _logits(model: Model, tokens: float) -> float:
    """Bytes of logits, and of what they are turned into."""
    return 2 * FLOAT32 * tokens * model.vocabulary


def _one_by_one(parts: Sequence[Work]) -> Work:
    """Works of one job, one after the other."""
    return Work(
        sum(part.seconds for part in parts),
        max(part.weights for part in parts),
        max(part.held for part in parts),
    )
