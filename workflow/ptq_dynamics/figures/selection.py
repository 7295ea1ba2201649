"""What a figure's query selects: the settings that its data is read by."""

from abc import abstractmethod
from operator import not_
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import Ages, Shown, ShownRun
from ptq_dynamics.measure.metrics import Column
from ptq_dynamics.measure.series import Series


class Selection(Strict):
    """All that a figure's query selects, with curves in the order of the legend."""

    curves: tuple[tuple[str, tuple[str, ...]], ...]
    quantizers: tuple[Shown, ...]
    series: tuple[Series, ...]
    runs: tuple[ShownRun, ...]
    ages: Ages
    scale: str
    notes: tuple[str, ...]
    uncertain_rates: tuple[str, ...]  # public models whose learning rate is uncertain
    # The lowest and the highest peak rate of all controlled runs, if labels have rates.
    rates: Annotated[tuple[float, float] | None, Field(exclude_if=lambda rates: rates is None)] = (
        None
    )
    absent: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()  # curves that the scale lacks
    # The words of metrics that `figures.labels` does not have.
    columns: Annotated[tuple[Column, ...], Field(exclude_if=not_)] = ()

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the figure shows."""

    @property
    @abstractmethod
    def grouped(self) -> bool:
        """Whether curves named "GROUP: NAME" have panels for every group."""
