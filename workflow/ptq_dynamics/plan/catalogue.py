"""A configuration at its scale: with miniatures or public models, and with own checkpoints; and all
trajectories by name, each planned when it is first read."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.runs import Branch, Run, Trunk
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.plan import miniatures, own_checkpoints, releases
from ptq_dynamics.plan.miniatures import Miniature, MiniaturePhase, Stage
from ptq_dynamics.plan.own_checkpoints import OwnCheckpoints
from ptq_dynamics.plan.planned import Basis, PlannedTrajectory
from ptq_dynamics.plan.planned_averages import plan_average
from ptq_dynamics.plan.planned_miniatures import plan_miniature, plan_phase, plan_stage
from ptq_dynamics.plan.planned_runs import PlannedBranch, PlannedRun, plan_branch, plan_trunk
from ptq_dynamics.plan.releases import Public, plan_release
from ptq_dynamics.trajectories.averages import Average

Entry = Run | Public | Average


class Catalogue(Mapping[str, PlannedTrajectory]):
    """Planned trajectories by name. Their sources must exist, and none may be its own source."""

    def __init__(self, basis: Basis, entries: Mapping[str, Entry]) -> None:
        self.basis, self.entries = basis, entries
        self._planned = dict[str, PlannedTrajectory]()

    def __getitem__(self, name: str) -> PlannedTrajectory:
        if name not in self._planned:
            self._planned[name] = self._plan(name, self.entries[name])
        return self._planned[name]

    def __contains__(self, name: object) -> bool:
        # Does not plan the trajectory, whose sources may not exist.
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _plan(self, name: str, entry: Entry) -> PlannedTrajectory:
        basis = self.basis
        if isinstance(entry, Public):
            if isinstance(entry, OwnCheckpoints):
                # Options may give rates and tokens of own checkpoints.
                checkpoints = tuple(map(entry.checkpoint, entry.revisions))
                return plan_release(name, basis, entry, basis.seeds[:1], checkpoints)
            return plan_release(name, basis, entry, (0,))  # public models have no seed
        sources = {label: self[source] for label, source in entry.sources().items()}
        match entry:
            case Average():
                return plan_average(name, basis, entry, sources)
            case Stage():
                return plan_stage(name, entry, sources, self.run(entry.after))
            case MiniaturePhase():
                return plan_phase(name, entry, sources, self.run(entry.trunk))
            case Branch():
                return plan_branch(PlannedBranch, name, entry, sources, self.run(entry.trunk))
            case Miniature():
                return plan_miniature(name, basis, entry)
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
        return [self.run(name) for name, entry in self.entries.items() if isinstance(entry, Run)]


@dataclass(frozen=True)
class Resolved:
    """A configuration with the models, corpora, runs and figures of its scale, its `public` models,
    and the `reasons` why other entries of runs.yaml and families.yaml are not built. `left_out` are
    the trajectories that each figure lacks, and `absent` its curves without trajectories."""

    config: Config
    public: dict[str, Public]
    reasons: dict[str, str]
    left_out: dict[str, tuple[str, ...]]
    absent: dict[str, tuple[str, ...]]

    @property
    def trajectories(self) -> Catalogue:
        """The planned trajectories."""
        choice, runs = self.config.choice, self.config.runs
        seeds = tuple(dict.fromkeys((choice.seed, *choice.more_seeds)))
        basis = Basis(self.config.scale, runs.defaults, seeds)
        return Catalogue(basis, {**runs.runs, **self.public, **runs.averages})


def resolve(config: Config) -> Resolved:
    """Return a configuration at its scale; raises `Problem` if entries do not fit the scale."""
    file, families, own = config.file, config.families, config.runs
    runs, public = dict[str, Run](), dict[str, Public]()
    if config.scale.miniatures:
        scale, runs, reasons = miniatures.with_miniatures(families, config.scale, file)
    else:
        scale, public, reasons = releases.with_releases(families, config.scale, file, config.lock)
    scale, elsewhere = own_checkpoints.with_own(families.own, scale, config.lock)
    for name, run in own.runs.items():
        if isinstance(run, Trunk) and run.model not in scale.models:
            reasons[name] = f"{file} has no model {run.model!r}"
    names = Counter([*own.runs, *own.averages, *families.runs, *families.averages, *elsewhere])
    if twice := [name for name, count in names.items() if count > 1]:
        raise Problem(f"runs.yaml and families.yaml have {twice[0]!r} twice; rename one")
    sections = {
        "runs": {**own.runs, **runs},
        "averages": {**own.averages, **families.averages},
    }
    config = config.model_copy(update={"scale": scale, "runs": own.model_copy(update=sections)})
    return Resolved(config, public | elsewhere, reasons | scale.regime.left_out, {}, {})


def leave_out(resolved: Resolved) -> Resolved:
    """Return what remains without the trajectories that the scale lacks; `Problem` if nothing
    remains of a chosen figure."""
    config, reasons = resolved.config, resolved.reasons
    scale, runs = config.scale, config.runs
    require(f"{config.file}: regime.left_out", "run", scale.regime.left_out, runs.runs)
    made: dict[str, Run | Average] = {**runs.runs, **runs.averages}
    sources = {name: {*entry.sources().values()} for name, entry in made.items()}
    names, count = {*reasons}, -1
    while len(names) > count:
        count = len(names)
        names |= {name for name, needed in sources.items() if needed & names}
    kept = runs.model_copy(
        update={
            "runs": {name: run for name, run in runs.runs.items() if name not in names},
            "averages": {name: mean for name, mean in runs.averages.items() if name not in names},
        }
    )
    figures, left_out = dict[str, Figure](), dict[str, tuple[str, ...]]()
    absent = dict[str, tuple[str, ...]]()
    for name, figure in config.figures.items():
        left_out[name] = tuple(member for member in figure.trajectories if member in names)
        curves = dict[str, tuple[str, ...]]()
        for label, members in figure.curves.items():
            if rest := tuple(member for member in members if member not in names):
                curves[label] = rest
        absent[name] = tuple(label for label in figure.curves if label not in curves)
        if curves:
            figures[name] = figure.model_copy(update={"curves": curves})
        elif name in config.choice.figures:
            why = "; ".join(dict.fromkeys(reasons[n] for n in left_out[name] if n in reasons))
            raise Problem(f"{scale.description} leaves out figure {name} ({why}); choose others")
    config = config.model_copy(update={"runs": kept, "figures": figures})
    resolved = replace(resolved, config=config, left_out=left_out, absent=absent)
    kind, compared = f"trajectory of {scale.description}", config.backends.trajectory
    require("config/backends.yaml: trajectory", kind, [compared], resolved.trajectories)
    return resolved
