"""A configuration at its scale: with miniatures or public models, and with own checkpoints; and all
trajectories by name, each planned after its sources."""

from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from pydantic import TypeAdapter

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.config.errors import require, validated
from ptq_dynamics.config.runs import Branch, Run, Trunk
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.plan.miniatures import Miniature, with_miniatures
from ptq_dynamics.plan.own_checkpoints import with_own
from ptq_dynamics.plan.planned import Basis, PlannedTrajectory, plan_average
from ptq_dynamics.plan.planned_runs import PlannedRun, plan_branch, plan_trunk
from ptq_dynamics.plan.releases import Public, plan_release, with_releases
from ptq_dynamics.trajectories.averages import Average

Entry = Run | Miniature | Public | Average


class Catalogue(dict[str, PlannedTrajectory]):
    """Planned trajectories by name, and their `places` in the configuration. Raises `Problem` if a
    source does not exist, or an entry is its own source."""

    def __init__(self, config: Config, entries: Mapping[str, Entry]) -> None:
        super().__init__()
        choice, families, places = config.choice, config.families, dict[str, str]()
        seeds = tuple(dict.fromkeys((choice.seed, *choice.more_seeds)))
        self.basis, self.places = Basis(config.scale, config.runs.defaults, seeds), places
        for name, entry in entries.items():
            file = "families" if name in {**families.runs, **families.averages} else "runs"
            section = "averages" if isinstance(entry, Average) else "runs"
            places[name] = f"config/{file}.yaml: {section}.{name}"
        sources = {name: entry.sources() for name, entry in entries.items()}
        for name, labels in sources.items():
            for label, source in labels.items():
                require(f"{places[name]}.{label}", "trajectory", [source], entries)
        trunks = [name for name, entry in entries.items() if isinstance(entry, Trunk)]
        for name, entry in entries.items():
            if isinstance(entry, Branch):
                require(f"{places[name]}.trunk", "run from fresh weights", [entry.trunk], trunks)
        order = TopologicalSorter({name: labels.values() for name, labels in sources.items()})
        try:
            for name in order.static_order():
                self[name] = self._plan(name, entries[name])
        except CycleError as error:
            raise Problem(f"{places[error.args[1][0]]} depends on itself") from None
        for name in entries:
            self[name] = self.pop(name)

    def _plan(self, name: str, entry: Entry) -> PlannedTrajectory:
        basis = self.basis
        sources = {label: self[source] for label, source in entry.sources().items()}
        match entry:
            case Public():
                return plan_release(name, basis, entry)
            case Average():
                return plan_average(name, basis, entry, sources)
            case Miniature():
                return entry.planned(name, basis, sources)
            case Branch():
                return plan_branch(name, entry, sources)
            case Trunk():
                return plan_trunk(name, basis, entry)
        raise TypeError(f"{name} is no trajectory")

    def run(self, name: str) -> PlannedRun:
        """Return a run by its name."""
        run = self[name]
        assert isinstance(run, PlannedRun)
        return run

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs."""
        return [run for run in self.values() if isinstance(run, PlannedRun)]


class Resolved(NamedTuple):
    """A configuration with the models, corpora and figures of its scale, the `entries` of all
    trajectories, and the `reasons` why others of runs.yaml and families.yaml are not built."""

    config: Config
    entries: dict[str, Entry]
    reasons: dict[str, str]


def resolve(config: Config) -> Resolved:
    """Return a configuration at its scale; raises `Problem` if entries do not fit the scale."""
    file, families, runs = config.file, config.families, config.runs
    of_families: Mapping[str, Entry]
    if config.scale.miniatures:
        scale, of_families, reasons = with_miniatures(families, config.scale, file)
    else:
        scale, of_families, reasons = with_releases(families, config.scale, file, config.lock)
    scale, own = with_own(families.own, scale, config.lock)
    for name, run in runs.runs.items():
        if isinstance(run, Trunk) and run.model not in scale.models:
            reasons[name] = f"{file} has no model {run.model!r}"
    names = Counter([*runs.runs, *runs.averages, *families.runs, *families.averages, *own])
    if twice := [name for name, count in names.items() if count > 1]:
        raise Problem(f"runs.yaml and families.yaml have {twice[0]!r} twice; rename one")
    entries: dict[str, Entry] = {
        **runs.runs,
        **of_families,
        **own,
        **runs.averages,
        **families.averages,
    }
    config = config.model_copy(update={"scale": scale})
    return Resolved(config, entries, reasons | scale.regime.left_out)


def leave_out(resolved: Resolved) -> Resolved:
    """Return what remains without the trajectories that the scale lacks; `Problem` if nothing
    remains of a chosen figure."""
    config, reasons, scale = resolved.config, resolved.reasons, resolved.config.scale
    left_out = scale.regime.left_out
    runs = [name for name, entry in resolved.entries.items() if not isinstance(entry, Average)]
    require(f"{config.file}: regime.left_out", "run", left_out, runs)
    names, count = {**reasons}, -1
    while len(names) > count:
        count = len(names)
        for name, entry in resolved.entries.items():
            if gone := [source for source in entry.sources().values() if source in names]:
                names.setdefault(name, names[gone[0]])
    entries = {name: entry for name, entry in resolved.entries.items() if name not in names}
    figures = dict[str, Figure]()
    for name, figure in config.figures.items():
        curves = dict[str, tuple[str, ...]]()
        for label, members in figure.curves.items():
            if rest := tuple(member for member in members if member not in names):
                curves[label] = rest
        if curves == figure.curves:
            figures[name] = figure
        elif curves:
            place = f"{config.file}: without regime.left_out, figure {name}"
            less = figure.model_copy(update={"curves": curves})
            try:
                figures[name] = validated(TypeAdapter(Figure), less.model_dump(), place)
            except Problem:
                if name in config.chosen:
                    raise
        elif name in config.choice.figures:
            why = dict.fromkeys(names[name] for name in figure.trajectories)
            left = f"{scale.description} leaves out figure {name} ({'; '.join(why)})"
            raise Problem(f"{left}; choose others")
    kind, compared = f"trajectory of {scale.description}", config.backends.trajectory
    require("config/backends.yaml: trajectory", kind, [compared], entries)
    return Resolved(config.model_copy(update={"figures": figures}), entries, reasons)
