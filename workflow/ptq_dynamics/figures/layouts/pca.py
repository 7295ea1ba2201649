"""Checkpoints of trajectories in their first two principal components."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.curvature.settings import SCORES
from ptq_dynamics.figures.labels import Panel
from ptq_dynamics.figures.layout import Layout, Reads
from ptq_dynamics.measure.names import SEED, TRAJECTORY

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


class Pca(Layout):
    """The first two of `components` principal components, with a line per trajectory and seed."""

    layout: Literal["pca"]
    quantizers: tuple[()] = ()
    metrics: tuple[()] = ()
    components: Annotated[int, Field(ge=2)]

    @property
    def reads(self) -> Reads:
        """Principal components."""
        return Reads(components=self.components)

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        from ptq_dynamics.measure.measurements import read_table

        (manifest,) = sheet.data.inputs[needs.COMPONENTS]
        scores = read_table(manifest.file(SCORES), {TRAJECTORY: "string"})
        scores = sheet.data.members.merge(scores, on=TRAJECTORY)
        several = scores.groupby(TRAJECTORY)[SEED].transform("nunique") > 1
        segment = scores.trajectory + (" seed " + scores.seed.astype(str)).where(several, "")
        table = scores.rename(columns={"pc1": "x", "pc2": "y", SEED: "seeds"})
        table = table.assign(segment=segment, axis="left", metric="components")
        x, y = (
            f"Component {number} ({100 * share:.0f} % of variance)"
            for number, share in enumerate(manifest.facts["explained"][:2], start=1)
        )
        sheet.add(Panel("Checkpoints", x, y), table)
        return sheet.publish()
