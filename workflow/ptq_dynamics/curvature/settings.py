"""Files and settings of landscapes and principal components."""

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.quantize.methods import AnyQuantizer, CalibrationSettings

SCORES, GRID, POINTS = "scores.csv", "grid.csv", "points.csv"


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
