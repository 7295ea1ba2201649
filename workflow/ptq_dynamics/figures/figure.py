"""A figure of any layout, and the settings of the stage that draws it."""

from operator import not_
from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.figures.labels import Ages, Shown, ShownRun
from ptq_dynamics.figures.layout import Layout
from ptq_dynamics.measure.metrics import Column
from ptq_dynamics.measure.series import Series

Figure = Annotated[Layout, OneOf("ptq_dynamics.figures.layouts", by="layout")]


class FigureSettings(Strict):
    """A figure and all that its query selects, with curves in the order of the legend."""

    figure: Figure
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
