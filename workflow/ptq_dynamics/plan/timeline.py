"""When things happen in a run: its steps, checkpoints and measurements, from the configuration."""

from functools import cache
from typing import Any

from ptq_dynamics.config import Branch, Config, Interpolation, Lawa, ModelShape, Whole
from ptq_dynamics.trajectories import trajectory


class Timeline:
    """Runs and averages of a configuration in whole steps."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def run(self, name: str) -> Whole | Branch:
        """A run as it is configured."""
        return self.config.runs.runs[name]

    def trunk(self, name: str) -> Whole:
        """The run that a trajectory starts with: itself, or the one it branches from."""
        run = self.run(self.base(name))
        whole = self.run(run.trunk) if isinstance(run, Branch) else run
        assert isinstance(whole, Whole)
        return whole

    def base(self, name: str) -> str:
        """The run behind a trajectory; behind a line, that of its end."""
        match self.config.runs.averages.get(name):
            case Lawa() as lawa:
                return lawa.trajectory
            case Interpolation() as line:
                return self.base(line.end)
        return name

    @cache
    def steps(self, share: Any) -> int:
        """A share of the budget in whole steps, at least one."""
        return max(1, round(share * self.config.scale.budget))

    @cache
    def ends(self, name: str) -> tuple[int, int]:
        """First and last step of a run."""
        run = self.run(name)
        if isinstance(run, Branch):
            first = self.steps(run.at)
            return first, first + self.steps(run.cooldown)
        return 0, self.steps(run.length)

    def checkpoint_every(self, name: str) -> int:
        """Steps between the checkpoints of a run."""
        run = self.run(name)
        return self.steps(run.checkpoint_every or self.config.runs.defaults.checkpoint_every)

    @cache
    def grid(self, name: str) -> list[int]:
        """Steps of the checkpoints of a run."""
        return trajectory.grid(*self.ends(name), self.checkpoint_every(name))

    @cache
    def state_steps(self, name: str) -> list[int]:
        """Steps at which a run keeps its whole state for others to branch off."""
        run = self.run(name)
        if isinstance(run, Branch):
            return []
        every = self.steps(run.state_every) if run.state_every else None
        regular = range(every, self.ends(name)[1] + 1, every) if every else ()
        return sorted({*regular, *map(self.steps, run.state_at)})

    @cache
    def measured_steps(self, name: str) -> list[int]:
        """Steps of a trajectory that are quantized and evaluated: along its grid as `measure` says,
        its first and its last."""
        match self.config.runs.averages.get(name):
            case Lawa() as lawa:
                reach = self.steps(lawa.every) * lawa.window
                return [s for s in self.measured_steps(lawa.trajectory) if s >= reach]
            case Interpolation() as line:
                return list(range(line.points))
        grid, (first, _) = self.grid(name), self.ends(name)
        every = self._measured_every(name)
        return [s for s in grid if (s - first) % every == 0 or s in (grid[0], grid[-1])]

    def _measured_every(self, name: str) -> int:
        measure, (first, last) = self.config.scale.measure, self.ends(name)
        if isinstance(self.run(name), Branch):
            return self.steps(measure.cooldown_every)
        spacing = self.checkpoint_every(name)
        at_most = (last - first) // measure.trunk_least
        return min(self.steps(measure.trunk_every), max(spacing, at_most // spacing * spacing))

    @cache
    def shards(self, name: str) -> dict[str, list[int]]:
        """The measured steps of a trajectory by shard: one job each."""
        steps, size = self.measured_steps(name), self.config.scale.shard
        if size is None:
            return {"all": steps}
        parts = [steps[start : start + size] for start in range(0, len(steps), size)]
        return {trajectory.folder_name(part[0]): part for part in parts}

    def shape(self, name: str) -> ModelShape:
        """Shape of a trajectory's model."""
        return self.config.scale.models[self.trunk(name).model]
