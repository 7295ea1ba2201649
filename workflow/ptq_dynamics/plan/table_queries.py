"""Which trajectories and quantizers tables read of figures, and in addition to them."""

from collections.abc import Iterator
from itertools import product

from ptq_dynamics.claims.definitions import TableQuery
from ptq_dynamics.config import Figure
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR
from ptq_dynamics.plan.catalogue import Catalogue
from ptq_dynamics.plan.planned_branches import PlannedBranch
from ptq_dynamics.plan.site import Site


def rows(planned: Catalogue, table: TableQuery, figure: Figure) -> Iterator[tuple[str, str]]:
    """Yield the trajectories that a table shows of a figure, each after its curve's label."""
    for label, members in figure.curves.items():
        for name in members:
            trajectory = planned[name]
            is_branch = isinstance(trajectory, PlannedBranch) or trajectory.branched is not None
            if is_branch or not table.branches:
                yield label, name


def lacking(site: Site, table: TableQuery) -> Iterator[Figure]:
    """Yield queries for a table's quantizers that figures lack, in a build of all figures."""
    config = site.config
    figures = [config.figures[name] for name in table.figures if name in config.figures]
    for quantizer, figure in product(table.quantizers, figures):
        if config.is_whole and quantizer not in figure.quantizers:
            curves = dict[str, tuple[str, ...]]()
            for label, name in rows(site.planned, table, figure):
                curves[label] = (*curves.get(label, ()), name)
            query = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
            yield figure.model_copy(update={**query, "metrics": (LOSS, QUANTIZATION_ERROR)})
