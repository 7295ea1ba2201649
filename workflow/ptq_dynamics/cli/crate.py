"""`ptq-dynamics crate`: a scale's results with their provenance, for tools of others."""

from pathlib import Path

from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.captions import PAGE
from ptq_dynamics.provenance import citation
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.crate import Export, export, verify
from ptq_dynamics.provenance.crate.verifying import agent


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
    page = Path(plan.site.pictures) / PAGE
    pages = (page,) if page.is_file() else ()
    return Export(scale, Archive.of_scale(scale), pages, citation.read(), name)
