"""Settings of the stages that measure losses, what a series of measurements is, and the names of
the files that measurements come in."""

from dataclasses import dataclass

# The method, and the name, of weights that are not quantized.
FULL_PRECISION = "fp"

LOSSES = "losses.safetensors"  # of an evaluation: loss of every block, by checkpoint id
LAYERS = "layers.csv"  # of a quantization: errors of every layer of every checkpoint
VALUES = "values.csv"  # of a probe: CHECKPOINT, metric, value, stderr
CHECKPOINT = "checkpoint_id"  # the column that says which, in tables of a trajectory
MEASUREMENTS = "measurements.csv"

# Metrics of every layer, which quantizing gives; the probes, each with the metrics it gives.
LAYER_METRICS = ("weight_mse", "output_mse")
PROBES = {"sharpness": ("sharpness", "hessian_trace"), "spectrum": ("eigenvalues",)}


@dataclass(frozen=True)
class LossSettings:
    """Validation of some checkpoints on the first `blocks` blocks of `context` tokens, `batch` at
    once; full precision is evaluated in float32, quantized models in their own dtype."""

    checkpoints: tuple[str, ...]
    context: int
    blocks: int
    batch: int
    full_precision: bool


@dataclass(frozen=True)
class Series:
    """One trajectory at one seed under one quantizer (`fp`: full precision): what a query selects,
    and the columns of its measurements. `method`, `bits` and `group_size` are the quantizer's."""

    trajectory: str
    seed: int | None
    family: str
    quantizer: str
    method: str
    bits: int | None
    group_size: int | None

    def label(self, kind: str) -> str:
        """Label of a job's inputs that hold one kind of its raw results: losses, layers, or a
        probe's name."""
        return f"{kind} {self.trajectory} seed {self.seed} {self.quantizer}"


@dataclass(frozen=True)
class CollectSettings:
    """All series of a scale."""

    series: tuple[Series, ...]
