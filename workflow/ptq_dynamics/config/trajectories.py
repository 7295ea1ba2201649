"""Type of config/runs.yaml, and all trajectories of a scale: its own, with those of families."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, PrivateAttr, Tag

from ptq_dynamics.base.fields import Rate, Share, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.names import Named
from ptq_dynamics.config.public import Public
from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.train.averages import AnyAverage
from ptq_dynamics.train.optimizers import AnyOptimizer
from ptq_dynamics.train.timeline import PlannedTrajectory


def _kind_of_run(data: Any) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "whole"


AnyRun = Annotated[
    Annotated[Whole, Tag("whole")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class RunDefaults(Strict):
    """What runs share unless they say otherwise; `clip` is the largest gradient norm."""

    optimizer: AnyOptimizer
    clip: Rate
    warmup: Share
    checkpoint_every: Share


class Runs(Strict):
    """Controlled runs and the averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: Named[AnyRun]
    averages: Named[AnyAverage]
    # Public models, whose checkpoints are fetched; those of which none are known, and why; and the
    # names of what stands in families.yaml.
    _public: Mapping[str, Public] = PrivateAttr(default_factory=dict)
    _unknown: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _families: frozenset[str] = PrivateAttr(default=frozenset())

    def file(self, name: str) -> str:
        """The file that a trajectory stands in."""
        return "config/families.yaml" if name in self._families else "config/runs.yaml"

    @property
    def public(self) -> Mapping[str, Public]:
        """Public models, whose checkpoints are fetched, by name."""
        return self._public

    @property
    def unknown(self) -> Mapping[str, str]:
        """Why there are no checkpoints of some public models, by name."""
        return self._unknown

    @property
    def trajectories(self) -> dict[str, PlannedTrajectory]:
        """All trajectories by name."""
        return {**self.runs, **self._public, **self.averages}

    def with_families(
        self,
        runs: Mapping[str, Run],
        public: Mapping[str, Public],
        unknown: Mapping[str, str],
        averages: Mapping[str, AnyAverage],
    ) -> "Runs":
        """With the runs and averages of families beside; `Problem` where two have one name."""
        families = [*runs, *public, *unknown, *averages]
        names = Counter([*self.runs, *self.averages, *families])
        if twice := [name for name, count in names.items() if count > 1]:
            raise Problem(
                f"config/runs.yaml and config/families.yaml have {twice[0]!r} twice; rename a run "
                "or average"
            )
        every = {"runs": {**self.runs, **runs}, "averages": {**self.averages, **averages}}
        found = self.model_copy(update=every)
        found._public, found._unknown = public, unknown
        found._families = frozenset(families)
        return found
