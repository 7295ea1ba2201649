"""What tables have measured for themselves: rows under quantizers that no figure of theirs has."""

from collections.abc import Iterator

from ptq_dynamics.claims.settings import RunsTable, TableKind
from ptq_dynamics.config import Branch, Figure, PublicRun
from ptq_dynamics.graph.site import Site
from ptq_dynamics.measure.names import LOSS, QUANTIZATION_ERROR


def lacking(site: Site, table: TableKind) -> Iterator[Figure]:
    """Queries of what a table asks of its rows and its figures do not measure, with the seeds of
    these and one calibration set; none where not all figures were chosen."""
    if not isinstance(table, RunsTable) or site.config.choice.figures != "all":
        return
    known = [site.config.figures[name] for name in table.figures if name in site.config.figures]
    there = {
        (name, quantizer)
        for figure in known
        if QUANTIZATION_ERROR in figure.metrics
        for name in figure.trajectories
        for quantizer in figure.quantizers
    }
    for quantizer in table.quantizers:
        for figure in known:
            curves = dict[str, tuple[str, ...]]()
            for label, members in figure.curves.items():
                rows = (name for name in members if not table.branches or _branches(site, name))
                if gone := tuple(name for name in rows if (name, quantizer) not in there):
                    curves[label] = gone
                    there |= {(name, quantizer) for name in gone}
            if curves:
                asked = {"curves": curves, "quantizers": (quantizer,), "draws": {}}
                metrics = (LOSS, QUANTIZATION_ERROR)
                yield figure.model_copy(update={**asked, "metrics": metrics})


def _branches(site: Site, name: str) -> bool:
    run, public = site.timeline.run(name), site.config.runs.public.get(name)
    return isinstance(run, Branch) or (isinstance(public, PublicRun) and public.trunk is not None)
