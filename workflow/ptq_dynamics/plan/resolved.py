"""A configuration at its scale: with miniatures or public models, and with own checkpoints."""

from collections import Counter
from dataclasses import dataclass, replace

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, Figure, require
from ptq_dynamics.config.runs import Run, Whole
from ptq_dynamics.plan import miniatures, own_checkpoints, releases
from ptq_dynamics.plan.catalogue import Catalogue, Entry
from ptq_dynamics.plan.planned import Basis
from ptq_dynamics.plan.releases import Public


@dataclass(frozen=True)
class Resolved:
    """A configuration with the models, corpora, runs and figures of its scale, its `public` models,
    and the reasons why other entries of runs.yaml and families.yaml cannot be built. `gone` are the
    trajectories that each figure lacks, and `absent` its curves without trajectories."""

    config: Config
    public: dict[str, Public]
    unknown: dict[str, str]
    gone: dict[str, tuple[str, ...]]
    absent: dict[str, tuple[str, ...]]

    @property
    def entries(self) -> dict[str, Entry]:
        """All entries of trajectories by name."""
        return {**self.config.runs.runs, **self.public, **self.config.runs.averages}

    def trajectories(self) -> Catalogue:
        """Return the planned trajectories."""
        choice, runs = self.config.choice, self.config.runs
        seeds = tuple(dict.fromkeys((choice.seed, *choice.more_seeds)))
        return Catalogue(Basis(self.config.scale, runs.defaults, seeds), self.entries)


def resolve(config: Config) -> Resolved:
    """Return a configuration at its scale; raises `Problem` if entries do not fit the scale."""
    file, families, own = config.file, config.families, config.runs
    runs, public = dict[str, Run](), dict[str, Public]()
    if config.scale.miniatures:
        scale, runs, unknown = miniatures.with_miniatures(families, config.scale, file)
    else:
        scale, public, unknown = releases.with_releases(families, config.scale, file, config.lock)
    scale, given = own_checkpoints.resolve(families.own, scale, config.lock)
    for name, run in own.runs.items():
        if isinstance(run, Whole) and run.model not in scale.models:
            unknown[name] = f"{file} has no model {run.model!r}"
    names = Counter([*own.runs, *own.averages, *families.runs, *families.averages, *given])
    if twice := [name for name, count in names.items() if count > 1]:
        raise Problem(f"runs.yaml and families.yaml have {twice[0]!r} twice; rename one")
    sections = {
        "runs": {**own.runs, **runs},
        "averages": {**own.averages, **families.averages},
    }
    update = {"scale": scale, "runs": own.model_copy(update=sections)}
    return Resolved(config.model_copy(update=update), public | given, unknown, {}, {})


def leave_out(resolved: Resolved) -> Resolved:
    """Return what remains without the trajectories that the scale lacks; `Problem` if nothing
    remains of a chosen figure."""
    config, entries, count = resolved.config, resolved.entries, -1
    scale, runs = config.scale, config.runs
    reasons = {**resolved.unknown, **scale.regime.left_out}
    require(f"{config.file}: regime.left_out", "run", scale.regime.left_out, runs.runs)
    names = {*reasons}
    while len(names) > count:
        count = len(names)
        names |= {
            name
            for name, entry in entries.items()
            if not isinstance(entry, Public) and not names.isdisjoint(entry.sources().values())
        }
    kept = runs.model_copy(
        update={
            "runs": {name: run for name, run in runs.runs.items() if name not in names},
            "averages": {name: mean for name, mean in runs.averages.items() if name not in names},
        }
    )
    figures, gone = dict[str, Figure](), dict[str, tuple[str, ...]]()
    absent = dict[str, tuple[str, ...]]()
    for name, figure in config.figures.items():
        gone[name] = tuple(member for member in figure.trajectories if member in names)
        left = {
            label: tuple(member for member in members if member not in names)
            for label, members in figure.curves.items()
        }
        absent[name] = tuple(label for label, members in left.items() if not members)
        if curves := {label: members for label, members in left.items() if members}:
            figures[name] = figure.model_copy(update={"curves": curves})
        elif name in config.choice.figures:
            why = "; ".join(dict.fromkeys(reasons[n] for n in gone[name] if n in reasons))
            raise Problem(f"{scale.description} leaves out figure {name} ({why}); choose others")
    config = config.model_copy(update={"runs": kept, "figures": figures})
    resolved = replace(resolved, config=config, gone=gone, absent=absent)
    kind, compared = f"trajectory of {scale.description}", config.backends.trajectory
    require("config/backends.yaml: trajectory", kind, [compared], resolved.entries)
    return resolved
