"""A figure of any layout, and the settings of the stage that draws it."""

from typing import Annotated

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.figures.labels import Selection
from ptq_dynamics.figures.layout import Layout

Figure = Annotated[Layout, OneOf("ptq_dynamics.figures.layouts", by="layout")]


class FigureSettings(Selection):
    """A figure and all that its query selects."""

    figure: Figure

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the figure."""
        return self.figure.metrics

    @property
    def grouped(self) -> bool:
        """Whether the figure's layout is grouped."""
        return self.figure.grouped
