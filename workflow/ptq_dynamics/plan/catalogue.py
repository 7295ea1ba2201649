"""All trajectories of a plan by name, each planned when it is first read."""

from collections.abc import Iterator, Mapping

from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.plan.miniatures import Miniature, MiniaturePhase, Stage
from ptq_dynamics.plan.own_checkpoints import Elsewhere, PlannedOwn
from ptq_dynamics.plan.planned import Basis, PlannedTrajectory
from ptq_dynamics.plan.planned_averages import PlannedAverage
from ptq_dynamics.plan.planned_branches import PlannedBranch
from ptq_dynamics.plan.planned_miniatures import PlannedMiniature, PlannedPhase, PlannedStage
from ptq_dynamics.plan.planned_runs import PlannedRun, PlannedTrunk
from ptq_dynamics.plan.releases import PlannedRelease, Public
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
        if isinstance(entry, Elsewhere):
            return PlannedOwn(name, self.basis, {}, entry)
        if isinstance(entry, Public):
            return PlannedRelease(name, self.basis, {}, entry)
        sources = {label: self[source] for label, source in entry.sources().items()}
        match entry:
            case Average():
                return PlannedAverage(name, self.basis, sources, entry)
            case Stage():
                return PlannedStage(name, self.basis, sources, entry, self.run(entry.after))
            case MiniaturePhase():
                return PlannedPhase(name, self.basis, sources, entry, self.run(entry.trunk))
            case Branch():
                return PlannedBranch(name, self.basis, sources, entry, self.run(entry.trunk))
            case Miniature():
                return PlannedMiniature(name, self.basis, sources, entry, None)
            case Whole():
                return PlannedTrunk(name, self.basis, sources, entry, None)
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
