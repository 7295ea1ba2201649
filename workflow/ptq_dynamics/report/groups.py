"""Groups of figures, and captions in the form that Snakemake's own report takes."""

import re
from collections.abc import Iterator

from ptq_dynamics.config import Figure
from ptq_dynamics.graph import Plan

# As the paper numbers them.
NUMBERED = re.compile(r"fig[0-9]+")
RUNS, MODELS, FURTHER = (
    "Runs of the paper",
    "Public models of the paper",
    "Beyond the paper's figures",
)
# What docutils may take for markup.
MARKUP = re.compile(r"([\\*`_|:<>\[\]])")


def group(plan: Plan, name: str) -> str:
    """The group that a figure is listed in."""
    if not NUMBERED.fullmatch(name):
        return FURTHER
    return MODELS if _of_public_models(plan, plan.site.config.figures[name]) else RUNS


def grouped(plan: Plan) -> Iterator[tuple[str, str]]:
    """Group and name of every chosen figure, group by group."""
    found = {name: group(plan, name) for name in plan.figures.chosen}
    for each in (RUNS, MODELS, FURTHER):
        yield from ((each, name) for name, own in found.items() if own == each)


def title(plan: Plan, name: str) -> str:
    """A figure's title, as Snakemake's own report can hold it."""
    return _apart(plan.site.config.figures[name].title)


def caption(plan: Plan, name: str) -> str:
    """A figure's caption as text that reStructuredText leaves as it is."""
    text = " ".join(plan.site.config.figures[name].caption.split())
    return MARKUP.sub(r"\\\1", _apart(text))


def _apart(text: str) -> str:
    """The same to readers: a sign without width keeps names from braces, which Snakemake 9.27 takes
    for wildcards, and from what would end its scripts."""
    return re.sub("[{<]", "\\g<0>\u2060", text)


def _of_public_models(plan: Plan, figure: Figure) -> bool:
    """Whether it shows released checkpoints, or miniatures in their place."""
    public = plan.site.config.runs.public
    return any(run.stands_for or run.name in public for run in plan.figures.runs(figure))
