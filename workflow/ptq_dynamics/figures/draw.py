"""The stage that draws a figure: NAME.pdf and NAME.png, and what they show, NAME.csv."""

from collections.abc import Mapping
from typing import Any

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.panels import Sheet, save


def run(context: Context[FigureSettings]) -> Mapping[str, Any]:
    """Join the measurements and draw them as the figure's layout does. Facts: the number of points,
    the smallest difference that each panel resolves, and what the layout adds."""
    picture = context.settings.figure.draw(Sheet(Curves(context.settings, context.inputs)))
    save(picture, context)
    return dict(picture.facts)
