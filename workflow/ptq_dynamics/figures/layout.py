"""The base class of layouts, one module each in `figures/layouts/`. Layouts import libraries for
drawing inside functions, because planning imports all layouts."""

from abc import abstractmethod
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Self, TypeVar

from pydantic import Field, model_validator

from ptq_dynamics.base.fields import Count, Name, Once, Strict
from ptq_dynamics.figures.columns import OrColumn, columns
from ptq_dynamics.figures.labels import names_in_groups
from ptq_dynamics.measure.names import LOSS, QUANTIZED, Evaluated, Metric
from ptq_dynamics.measure.series import Query

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet

MOST_CURVES = 8  # the number of line styles
BEFORE = "FP loss (nats/token)"  # label of the horizontal axis

T = TypeVar("T")
Some = Annotated[tuple[T, ...], Field(min_length=1), Once]
Text = Annotated[str, Field(min_length=1)]
Evaluations = Some[Evaluated]


class Reads(NamedTuple):
    """What a figure reads besides the measurements and runs of its trajectories: losses in planes
    through the last checkpoint and the one a share `plane` of the budget before; the first
    principal `components`; `ages` of averages, of which one at least has them; whether all are
    `lines` between two ends; and what runs have and averages lack."""

    plane: Fraction | None = None
    components: int | None = None
    ages: bool = False
    lines: bool = False
    of_runs: tuple[str, ...] = ()


class Layout(Strict):
    """A figure: curves × quantizers × metrics. `curves` has trajectories by label; a curve with a
    run and its branch continues with the branch. `draws` has quantizers with further calibration
    sets. A `headline` figure shows all seeds, or so many, unless its layout is `of_one_seed`; other
    figures show the first. `all` leaves out figures of a `group`. In a `grouped` layout, curves
    named "GROUP: NAME" have panels for every group."""

    of_one_seed: ClassVar[bool] = False
    grouped: ClassVar[bool] = False
    most_curves: ClassVar[float] = MOST_CURVES

    title: Text
    caption: Text
    headline: bool | Count = False
    group: Annotated[Name | None, Field(exclude_if=lambda group: group is None)] = None
    layout: str
    curves: Annotated[dict[Text, Some[str]], Field(min_length=1)]
    quantizers: Annotated[tuple[str, ...], Once] = ()
    draws: dict[str, Annotated[tuple[str, ...], Once]] = {}
    metrics: Some[Annotated[Metric, OrColumn()]]
    options: Strict = Strict()

    @property
    def trajectories(self) -> list[str]:
        """Names of the trajectories, each once."""
        return list(dict.fromkeys(chain.from_iterable(self.curves.values())))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        of_quantized = QUANTIZED | {
            column.name for column in columns().values() if column.quantized
        }
        quantized = [metric for metric in self.metrics if metric in of_quantized]
        if quantized and not self.quantizers:
            raise ValueError(f"metrics has {quantized[0]}, which needs quantizers; add one")
        if self.quantizers and self.metrics and not {*self.metrics} & {LOSS, *of_quantized}:
            raise ValueError(f"metrics has none that needs {self.quantizers[0]}; add one")
        if unknown := [name for name in self.draws if name not in self.quantizers]:
            raise ValueError(f"draws has {unknown[0]!r}, which is not one of quantizers")
        styles = names_in_groups(self.curves) if self.grouped else self.curves
        if len(styles) > self.most_curves:
            raise ValueError(f"curves has {len(styles)} styles, at most {MOST_CURVES}; remove some")
        return self

    @property
    def query(self) -> Query:
        """The measurements that the figure shows."""
        names, quantizers = tuple(self.trajectories), self.quantizers
        return Query(names, self.metrics, quantizers, self.headline, self.draws)

    @property
    def reads(self) -> Reads:
        """What the figure reads besides the measurements and runs of its trajectories."""
        return Reads()

    @abstractmethod
    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure on a sheet."""
