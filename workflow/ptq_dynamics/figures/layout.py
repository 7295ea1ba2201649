"""What all layouts of figures share. The class of a module in `figures/layouts/` is an entry of
config/figures.yaml, checks it against its trajectories, and draws it. Planning imports all layouts,
so what only drawing needs is imported where it is used."""

from abc import abstractmethod
from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Once, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.settings import Ages, names_in_groups
from ptq_dynamics.measure.names import LOSS, QUANTIZED, Evaluated, Metric

MOST_CURVES = 8  # as many as there are styles of lines
BEFORE = "FP loss (nats/token)"  # the horizontal axis of what is drawn against it

T = TypeVar("T")
Some = Annotated[tuple[T, ...], Field(min_length=1), Once]
Text = Annotated[str, Field(min_length=1)]
Evaluations = Some[Evaluated]


class Layout(Strict):
    """A figure: curves × quantizers × metrics, with a title and a caption for its readers.

    `curves` are the names of trajectories by label. They are measured in full precision and under
    the `quantizers`, each with further `draws` of the calibration set. A `headline` figure shows
    all seeds of the configuration, others, and all of a layout `of_one_seed`, the first. Curves of
    one that is `grouped` may be named "GROUP: NAME", with panels for every group. A curve with
    a run and a branch of it goes over to the branch.
    """

    of_one_seed: ClassVar[bool] = False
    grouped: ClassVar[bool] = False
    most_curves: ClassVar[float] = MOST_CURVES

    title: Text
    caption: Text
    headline: bool = False
    layout: str
    curves: Annotated[dict[Text, Some[str]], Field(min_length=1)]
    quantizers: Annotated[tuple[str, ...], Once] = ()
    draws: dict[str, Annotated[tuple[str, ...], Once]] = {}
    metrics: Some[Metric]
    options: Strict = Strict()

    @property
    def trajectories(self) -> list[str]:
        """Names of the trajectories, each once."""
        return list(dict.fromkeys(chain.from_iterable(self.curves.values())))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        quantized = [metric for metric in self.metrics if metric in QUANTIZED]
        if quantized and not self.quantizers:
            raise ValueError(
                f"metrics has {quantized[0]}, which needs a quantizer; name one in quantizers"
            )
        if self.quantizers and self.metrics and not {*self.metrics} & {LOSS, *QUANTIZED}:
            raise ValueError(f"metrics has nothing that is measured under {self.quantizers[0]}")
        unknown = [name for name in self.draws if name not in self.quantizers]
        if unknown:
            raise ValueError(f"draws has {unknown[0]!r}, which is none of its quantizers")
        # What is told apart by the style of lines.
        styles = names_in_groups(self.curves) if self.grouped else self.curves
        if len(styles) > self.most_curves:
            many = f"there are {len(styles)}, and {MOST_CURVES} can be told apart"
            raise ValueError(f"curves: {many}; take fewer")
        return self

    def check(self, place: str, timeline: Any) -> None:
        """`Problem` where it cannot be drawn; `place` is its key, `timeline` the planner's."""

    def no_averages(self, place: str, timeline: Any, what: str) -> None:
        """Raise `Problem` where an average is shown, which has not `what` is drawn."""
        for name in timeline.config.runs.averages.keys() & self.trajectories:
            raise Problem(f"{place} shows {what}, which {name}, an average, has not; leave it out")

    def inputs(self, name: str, planner: Any) -> Mapping[str, list[str]]:
        """Manifests that it reads besides runs and what is measured, by label."""
        return {}

    def ages(self, timeline: Any) -> Ages:
        """The ages of averages, where they are drawn by them."""
        return ()

    @abstractmethod
    def draw(self, sheet: Any) -> Any:
        """Draw the figure on a `panels.Sheet`; gives a `panels.Picture`."""
