"""`ptq-dynamics crate`: a scale's results with their provenance, for tools of others."""

from pathlib import Path

from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.captions import PAGE as CAPTIONS
from ptq_dynamics.provenance import citation
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.crate import Export, export, verify
from ptq_dynamics.provenance.crate.verifying import agent
from ptq_dynamics.report.settings import OTHER, PAGE


def make(plan: Plan, place: Path, name: str | None) -> bool:
    """Write a crate of all that is built at a scale."""
    told = export(_of(plan, name), place)
    print(f"{place} tells of {told} jobs, and holds the figures, tables, manifests and records")
    return True


def check(plan: Plan, place: Path) -> bool:
    """Compare a crate with what is built here; whether they are the same."""
    wrong = verify(place, _of(plan, agent(place)).graph())
    for line in wrong:
        print(f"wrong: {line}")
    print(f"{len(wrong)} things differ" if wrong else f"{place} says what is here")
    return not wrong


def _of(plan: Plan, name: str | None) -> Export:
    scale = plan.site.config.choice.scale
    told = {
        Path(plan.site.pictures, CAPTIONS): "the figures with titles and captions",
        Path(plan.site.results, PAGE): "a page to browse figures, claims, tables and provenance",
        Path(plan.site.results, OTHER): "Snakemake's own report of the build",
    }
    pages = {path: what for path, what in told.items() if path.is_file()}
    return Export(scale, Archive.of_scale(scale), pages, citation.read(), name)
