"""All trajectories of a plan by name, each planned when it is first read."""

from collections.abc import Iterator, Mapping

from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.plan.miniatures import Miniature, MiniaturePhase, Stage
from ptq_dynamics.plan.own_checkpoints import Elsewhere
from ptq_dynamics.plan.planned import Basis, PlannedTrajectory
from ptq_dynamics.plan.planned_averages import average
from ptq_dynamics.plan.planned_branches import PlannedBranch, branch
from ptq_dynamics.plan.planned_miniatures import miniature, phase, stage
from ptq_dynamics.plan.planned_runs import PlannedRun, trunk
from ptq_dynamics.plan.releases import Public, release
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
            if isinstance(entry, Elsewhere):
                # Options may give rates and tokens of own checkpoints.
                places = tuple(map(entry.checkpoint, entry.revisions))
                return release(name, basis, entry, basis.seeds[:1], places)
            return release(name, basis, entry, (0,))  # public models have no seed
        sources = {label: self[source] for label, source in entry.sources().items()}
        match entry:
            case Average():
                return average(name, basis, entry, sources)
            case Stage():
                return stage(name, entry, sources, self.run(entry.after))
            case MiniaturePhase():
                return phase(name, entry, sources, self.run(entry.trunk))
            case Branch():
                return branch(PlannedBranch, name, entry, sources, self.run(entry.trunk))
            case Miniature():
                return miniature(name, basis, entry)
            case Whole():
                return trunk(name, basis, entry)
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
