"""The stage that draws a figure: NAME.pdf and NAME.png, and what they show, NAME.csv."""

from collections.abc import Mapping

from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.labels import ORIGIN, PICTURES, SPANS, TABLE
from ptq_dynamics.figures.panels import Picture, Sheet
from ptq_dynamics.figures.places import spans


def run(context: Context[FigureSettings]) -> Mapping[str, object]:
    """Join the measurements and draw them as the figure's layout does. Facts: the number of points,
    the sentences below its caption, and where its panels lie in the picture."""
    picture = context.settings.figure.draw(Sheet(Curves(context.settings, context.inputs)))
    save(picture, context)
    return {**picture.facts, SPANS: spans(picture.figure)}


def save(picture: Picture, context: Context[FigureSettings]) -> None:
    """Write a figure's pictures, which carry their scale and the identity of what they are made
    from, and its table; equal input gives equal bytes."""
    # Laid out once: with a layout engine, matplotlib lays a figure out, and draws it, twice a file.
    picture.figure.draw_without_rendering()
    picture.figure.set_layout_engine(None)
    origin = ORIGIN.format(scale=context.settings.scale, identity=context.identity)
    fields = {"pdf": {"Keywords": origin, "CreationDate": None}, "png": {"Source": origin}}
    for kind in PICTURES:
        picture.figure.savefig(context.out / f"{context.name}.{kind}", metadata=fields[kind])
    path = context.out / f"{context.name}.{TABLE}"
    picture.table.to_csv(path, index=False, lineterminator="\n")
