"""Types of config/config.yaml, figures.yaml and backends.yaml: what is built of it all."""

from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ptq_dynamics.config.fields import Count, Share, Strict


def _words(value: Any) -> Any:
    # From the command line: --config figures="fig04 fig06".
    return value.split() if isinstance(value, str) and value != "all" else value


class Choice(Strict):
    """What to build: the scale, the seed of initial weights and data order, the figures."""

    scale: Literal["smoke", "laptop", "gpu", "paper"]
    seed: Annotated[int, Field(ge=0)]
    figures: Annotated[Literal["all"] | list[str], BeforeValidator(_words)]


class Landscape(Strict):
    """A plane through a trajectory's last checkpoint, its quantized weights and the checkpoint
    `previous` before."""

    previous: Share


class Figure(Strict):
    """A figure: the trajectories of every curve, by the curve's label; the quantizers, and what
    else is measured of every trajectory."""

    title: str
    caption: str
    curves: dict[str, list[str]]
    quantizers: list[str] = []
    curvature: list[Literal["sharpness", "spectrum"]] = []
    landscape: Landscape | None = None
    components: Count | None = None

    @property
    def trajectories(self) -> list[str]:
        """Names of the figure's trajectories, each once."""
        return list(dict.fromkeys(chain.from_iterable(self.curves.values())))


class Backends(Strict):
    """What `make backends` compares: groups of quantizers with equal settings, on the measured
    checkpoints of one trajectory."""

    trajectory: str
    groups: list[Annotated[list[str], Field(min_length=2)]]
