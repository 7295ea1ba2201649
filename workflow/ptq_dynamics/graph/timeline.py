"""When things happen: the steps, checkpoints and measurements of all trajectories, from the
configuration."""

from functools import cache
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, Point, Run, Trajectory, Whole


class Timeline:
    """The trajectories of a configuration in whole steps (see `config.kinds.Timeline`)."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.scale = config.scale
        self.defaults = config.runs.defaults
        self.seeds: tuple[int, ...] = (config.choice.seed, *config.choice.more_seeds)
        self._trajectories = config.runs.trajectories
        self.names = list(self._trajectories)

    def trajectory(self, name: str) -> Trajectory:
        """A trajectory as it is configured."""
        return self._trajectories[name]

    def run(self, name: str) -> Run | None:
        """The run that a trajectory is, or whose learning rate it follows; None of public models,
        which nothing trains here."""
        return self.config.runs.runs.get(self.trajectory(name).run(name, self))

    def trunks(self) -> list[str]:
        """Names of the runs that others can branch from: from fresh weights, without a cooldown."""
        runs = self.config.runs.runs.items()
        return [n for n, run in runs if isinstance(run, Whole) and run.schedule != "wsd"]

    @cache
    def steps(self, share: Any) -> int:
        """A share of the budget in whole steps, at least one."""
        return max(1, round(share * self.scale.budget))

    @cache
    def checkpoints(self, name: str) -> list[Point]:
        """The checkpoints of a trajectory, in their order."""
        return self.trajectory(name).checkpoints(self)

    @cache
    def measured(self, name: str) -> list[Point]:
        """Those of its checkpoints that are quantized, evaluated and probed."""
        return self.trajectory(name).measured(self)

    @cache
    def seeds_of(self, name: str) -> tuple[int, ...]:
        """The seeds that a trajectory is made for."""
        return self.trajectory(name).seeds_in(self)

    @cache
    def seeds_shown(self, name: str, headline: bool) -> tuple[int, ...]:
        """The seeds that a figure shows of a trajectory: all of a headline figure's, and of a run
        that has seeds of its own; else the first."""
        found, run = self.seeds_of(name), self.run(name)
        own = run is not None and (run.seeds or run.whole(self).seeds)
        return found if headline or own else found[:1]

    @cache
    def shards(self, name: str) -> dict[str, list[Point]]:
        """The measured checkpoints of a trajectory by shard: one job each."""
        points, size = self.measured(name), self.scale.shard
        if size is None:
            return {"all": points}
        parts = [points[start : start + size] for start in range(0, len(points), size)]
        return {part[0].id: part for part in parts}

    def shard(self, name: str, shard: str) -> list[Point]:
        """The measured checkpoints of one shard; raises `Problem` when there is none such."""
        shards = self.shards(name)
        if shard not in shards:
            raise Problem(f"{name} has no shard {shard!r} (its shards: {', '.join(shards)})")
        return shards[shard]
