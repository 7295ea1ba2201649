"""Settings of the stages that probe the loss around checkpoints, as they cross the job border."""

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.quantize.methods import AnyQuantizer, CalibrationSettings

# Files of results: scores of checkpoints; losses on a grid of a plane and at its three checkpoints.
SCORES = "scores.csv"
GRID, POINTS = "grid.csv", "points.csv"


class CurvatureSettings(Strict):
    """The Hessian of the loss on the first `sequences` blocks of `context` tokens of the probe
    split, `batch` at once, at some checkpoints; iterations end at the relative residual `tolerance`
    or after `max_iterations` products; `keep_graph` holds the gradient's graph between products."""

    checkpoints: tuple[str, ...]
    context: int
    sequences: int
    batch: int
    keep_graph: bool
    tolerance: float
    max_iterations: int
    seed: int


class SharpnessSettings(CurvatureSettings):
    """Top eigenvalue, and the trace from `trace_samples` Rademacher vectors."""

    trace_samples: int


class SpectrumSettings(CurvatureSettings):
    """The `eigenvalues` eigenvalues of largest magnitude."""

    eigenvalues: int


class LandscapeSettings(Strict):
    """The plane of two checkpoints and the final one's quantized weights, on a grid of side × side
    points that reaches `margin` of a side beyond them; the loss on the first `blocks` validation
    blocks of `context` tokens, `batch` at once."""

    final: str
    previous: str
    context: int
    blocks: int
    batch: int
    side: int
    margin: float
    quantizer: AnyQuantizer
    calibration: CalibrationSettings


class Path(Strict):
    """Some checkpoints of one trajectory at one seed; `label` is that of its input."""

    label: str
    trajectory: str
    seed: int
    checkpoints: tuple[str, ...]


class ComponentsSettings(Strict):
    """The first `components` principal components of the checkpoints of all paths together."""

    paths: tuple[Path, ...]
    components: int
