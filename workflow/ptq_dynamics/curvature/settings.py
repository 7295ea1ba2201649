"""Settings of the stages of curvature."""

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.quantize.methods import AnyQuantizer, CalibrationSettings

SCORES, GRID, POINTS = "scores.csv", "grid.csv", "points.csv"


class CurvatureSettings(Strict):
    """The Hessian on `sequences` probes of `context` tokens; `tolerance` is a relative residual."""

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
    """A grid of `side` × `side` points, and the loss on `blocks` blocks of `context` tokens."""

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
    """Checkpoints of the trajectory and seed in the input `label`."""

    label: str
    trajectory: str
    seed: int
    checkpoints: tuple[str, ...]


class ComponentsSettings(Strict):
    """The first `components` principal components of the checkpoints of all paths."""

    paths: tuple[Path, ...]
    components: int
