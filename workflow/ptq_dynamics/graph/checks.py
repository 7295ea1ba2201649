"""Checks of the configuration that concern more than one file or key, and trajectories that a scale
cannot have."""

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import chain, product
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import RunsTable
from ptq_dynamics.config import (
    Config,
    DatasetsCorpus,
    EmbeddedCorpus,
    Figure,
    Stage,
    Whole,
    require,
)
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.corpus.sources.mix import MixCorpus
from ptq_dynamics.measure.names import TASK_METRICS
from ptq_dynamics.train.timeline import PlannedTrajectory, Timeline

# One step with more would be closer to changing the sign of weights than to decay.
LARGEST_DECAY = 0.5
Names = tuple[str, ...]


def check(timeline: Timeline) -> None:
    """Raise `Problem`, naming file and key, when parts of the configuration do not fit together."""
    config: Config = timeline.config
    _check_names(config)
    _check_texts(config)
    runs = config.runs
    every: list[tuple[str, str, PlannedTrajectory]]
    every = [("runs", name, run) for name, run in runs.runs.items()]
    every += [("averages", name, average) for name, average in runs.averages.items()]
    for section, name, trajectory in every:
        place = f"{runs.file(name)}: {section}.{name}"
        for label, source in trajectory.sources().items():
            require(f"{place}.{label}", "trajectory", [source], timeline.names)
        if isinstance(trajectory, Whole):
            require(f"{place}.model", "model", [trajectory.model], timeline.scale.models)
    try:
        TopologicalSorter({name: each.sources().values() for _, name, each in every}).prepare()
    except CycleError as error:
        place = next(f"{section}.{name}" for section, name, _ in every if name in error.args[1])
        raise Problem(f"config/runs.yaml: {place} is made from itself") from None
    for section, name, trajectory in every:
        place = f"{runs.file(name)}: {section}.{name}"
        if isinstance(trajectory, Whole | Stage) and name not in config.scale.regime.left_out:
            _check_weight_decay(timeline, place, trajectory)
        trajectory.check(place, timeline)
    _check_quantizers(timeline)
    _check_amounts(timeline)
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        _check_draws(config, place, figure)
        asked = [metric for metric in figure.metrics if metric in TASK_METRICS]
        if asked and config.scale.tasks is None:
            raise Problem(f"{place}.metrics has {asked[0]}, but {_file(config)} has no tasks")
        for source in figure.trajectories if asked else ():
            tasks: Any = config.scale.tasks
            read = timeline.trajectory(source).model_shape(timeline).context
            made = any(config.tasks[each].made for each in tasks.names)
            if made and tasks.context > read:
                raise Problem(
                    f"{_file(config)}: tasks.context is {tasks.context:,}, and {source}, which is "
                    f"asked in {place}, reads {read:,} tokens; lower it"
                )
        figure.check(place, timeline)


def leave_out(
    config: Config, without: Iterable[str], place: str
) -> tuple[Config, dict[str, Names]]:
    """The configuration without some trajectories, and those made from them; and which each figure,
    by its name, goes without. A figure that has none left is left out too.

    Raises `Problem`, with the `place` that names them, when nothing is left of what is asked for.
    """
    names, every, count = {*without}, config.runs.trajectories, -1
    while len(names) > count:
        count = len(names)
        names |= {n for n, each in every.items() if not names.isdisjoint(each.sources().values())}
    if not names:
        return config, dict.fromkeys(config.figures, ())
    kept = {
        section: {n: each for n, each in getattr(config.runs, section).items() if n not in names}
        for section in ("runs", "averages")
    }
    figures, gone = dict[str, Figure](), dict[str, Names]()
    for name, figure in config.figures.items():
        gone[name] = tuple(each for each in figure.trajectories if each in names)
        left = {
            label: tuple(each for each in members if each not in names)
            for label, members in figure.curves.items()
        }
        if curves := {label: members for label, members in left.items() if members}:
            figures[name] = figure.model_copy(update={"curves": curves})
        elif config.choice.figures != "all" and name in config.choice.figures:
            raise Problem(f"{place} leaves nothing of figure {name}; choose others")
    if not figures:
        raise Problem(f"{place} leaves no figure")
    if config.backends.trajectory in names:
        raise Problem(
            f"{place} leaves out {config.backends.trajectory}, or what it is made of, which "
            "config/backends.yaml compares backends on; name another trajectory there"
        )
    runs = config.runs.model_copy(update=kept)
    return config.model_copy(update={"runs": runs, "figures": figures}), gone


def _file(config: Config) -> str:
    return f"config/scales/{config.choice.scale}.yaml"


def _check_weight_decay(timeline: Timeline, place: str, run: Whole | Stage) -> None:
    peak = run.peak(timeline)
    taken = run.optimizer_in(timeline).per_step(peak, peak)
    if taken > LARGEST_DECAY:
        raise Problem(
            f"{place}: at {timeline.scale.description} its weight decay takes {taken:g} of a "
            f"weight in one step, more than {LARGEST_DECAY}; lower it, or name the run in "
            "regime.left_out of the scale"
        )


def _check_names(config: Config) -> None:
    """That what files name is there."""
    runs, scale, backends = config.runs, config.scale, config.backends
    quantizers = config.quantizers
    chosen = [] if config.choice.figures == "all" else config.choice.figures
    require("config/config.yaml: figures", "figure", chosen, config.figures)
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        require(f"{place}.curves", "trajectory", figure.trajectories, runs.trajectories)
        named = [*figure.quantizers, *chain.from_iterable(figure.draws.values())]
        require(f"{place}.quantizers", "quantizer", named, quantizers)
    place = "config/backends.yaml"
    require(f"{place}: trajectory", "trajectory", [backends.trajectory], runs.trajectories)
    require(f"{place}: groups", "quantizer", chain.from_iterable(backends.groups), quantizers)
    place = _file(config)
    require(f"{place}: regime.left_out", "run", scale.regime.left_out, runs.runs)
    require(f"{place}: regime.final_losses", "run", scale.regime.final_losses, runs.runs)
    named = [*scale.quantizers, *scale.quantizers.values()]
    require(f"{place}: quantizers", "quantizer", named, quantizers)
    for name, shape in scale.models.items():
        require(f"{place}: models.{name}.corpus", "corpus", [shape.corpus], scale.corpora)
    if scale.tasks is not None:
        require(f"{place}: tasks.names", "task", scale.tasks.names, config.tasks)


def _check_texts(config: Config) -> None:
    """That nothing is trained on what is held out, and that tasks can be made of it."""
    place, tasks = _file(config), config.scale.tasks
    corpora: dict[str, Any] = dict(config.scale.corpora)
    embedded = {name: each for name, each in corpora.items() if isinstance(each, EmbeddedCorpus)}
    for name, mix in corpora.items():
        if isinstance(mix, Derived):
            require(f"{place}: corpora.{name}.of", "embedded corpus", [mix.of], embedded)
        whole = embedded[mix.of] if isinstance(mix, MixCorpus) else None
        if whole and whole.source_code and mix.text != "descriptions":
            # Some of those source files are held out.
            theirs = {*map(_distribution, whole.packages)}
            for package in mix.packages:
                if _distribution(package) in theirs:
                    raise Problem(
                        f"{place}: corpora.{name}.packages has {package!r}, whose source files "
                        f"{mix.of} has too, some of them held out; name packages that it has not"
                    )
    if tasks is None:
        return
    read = {
        _distribution(package): name
        for name, corpus in corpora.items()
        if isinstance(corpus, EmbeddedCorpus | MixCorpus)
        for package in corpus.packages
    }
    for package in tasks.others:
        if (corpus := read.get(_distribution(package))) is not None:
            raise Problem(
                f"{place}: tasks.others has {package!r}, which corpora.{corpus} reads; name "
                "packages that nothing is trained on"
            )
    others = [name for name, each in corpora.items() if isinstance(each, DatasetsCorpus)]
    for name in (name for name in tasks.names if config.tasks[name].made):
        shots = tasks.shots_before(name)
        if shots > tasks.pool:
            raise Problem(f"{place}: tasks.pool is {tasks.pool}, and {name} has {shots} shots")
        for key in ("documents", "context"):
            if getattr(tasks, key) is None:
                raise Problem(f"{place}: tasks.{key} is null, and {name} is made; set it")
        if others:
            raise Problem(
                f"{place}: tasks.names has {name}, which is made of documents that embedded "
                f"corpora hold out, and corpora.{others[0]} is none; name tasks of the harness"
            )


def _distribution(package: str) -> str:
    """A package's name as all its spellings have it."""
    return re.sub("[-_.]+", "-", package).lower()


def _check_amounts(timeline: Timeline) -> None:
    """That held-out splits have as much text as is read of them."""
    config: Config = timeline.config
    scale = config.scale
    shapes = {f"model {name!r}": scale.trained(name) for name in scale.models}
    shapes |= {f"run {n!r}": run.model_shape(timeline) for n, run in config.runs.runs.items()}
    named = {name for figure in config.figures.values() for name in figure.quantizers}
    taken = (config.quantizers[scale.used(name)] for name in named)
    draws = max(scale.calibration.draws, *(kind.calibration_draw for kind in taken), 1)
    for (whose, shape), (key, amount) in product(shapes.items(), scale.amounts.items()):
        place, context = f"{_file(config)}: {key}", shape.context
        is_calibration, count = key == "calibration", amount.count(context)
        least = 0 if is_calibration and scale.calibration.documents else amount.least
        if count < least:
            raise Problem(
                f"{place} has {count} blocks of {context} tokens ({whose}), and must have {least}; "
                "raise it"
            )
        if key == "curvature" and count % scale.curvature.batch:
            raise Problem(
                f"{place}.batch {scale.curvature.batch} does not divide its {count} blocks of "
                f"{context} tokens ({whose}), and the error over batches needs equal ones; change "
                "one of the two"
            )
        asked = max(1, count) * context * (draws if is_calibration else 1)
        owner = scale.held_by(shape.corpus)
        held = getattr(scale.whole(owner), amount.split)
        if asked > held:
            raise Problem(
                f"{place} asks for {asked:,} tokens in blocks of {context} ({whose}), but "
                f"corpora.{owner}.{amount.split} has {held:,}; lower the one or raise the other"
            )


def _check_quantizers(timeline: Timeline) -> None:
    """That quantizers fit to the models they are shown with."""
    config: Config = timeline.config
    for (name, quantizer), (model, shape) in product(
        config.quantizers.items(), config.scale.models.items()
    ):
        if (wrong := quantizer.misfit(shape.widths)) is not None:
            raise Problem(
                f"config/quantizers.yaml: {name}.{wrong} (model {model!r} at "
                f"{config.scale.description})"
            )
    place, backends = "config/backends.yaml: groups", config.backends
    shown = [(place, [backends.trajectory], [*chain.from_iterable(backends.groups)])]
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}.quantizers"
        shown.append((place, figure.trajectories, [*figure.quantizers]))
    for name, table in config.tables.items():
        if isinstance(table, RunsTable):
            place = f"config/tables.yaml: {name}.quantizers"
            require(place, "quantizer", table.quantizers, config.quantizers)
            known = [config.figures[each] for each in table.figures if each in config.figures]
            shown += [(place, figure.trajectories, [*table.quantizers]) for figure in known]
    for place, trajectories, quantizers in shown:
        for trajectory, name in product(trajectories, quantizers):
            kind, own = config.quantizers[config.scale.used(name)], timeline.trajectory(trajectory)
            wrong = kind.refuses(own.model_shape(timeline).model)
            if wrong is not None:
                raise Problem(
                    f"{place} has {name}, which cannot quantize {trajectory}: {wrong}; take "
                    "another quantizer or other trajectories"
                )


def _check_draws(config: Config, place: str, figure: Figure) -> None:
    """That quantizers of a figure are different ones at its scale, and its draws differ in the
    draw, and in it alone, as they are named and as the scale takes them."""
    scale, taken = config.scale, dict[str, str]()
    for name in (*figure.quantizers, *chain.from_iterable(figure.draws.values())):
        other = taken.setdefault(scale.used(name), name)
        if other != name:
            raise Problem(
                f"{place}.quantizers has {other} and {name}, but {scale.description} takes "
                f"{scale.used(name)} for both (quantizers of the scale); leave one out"
            )
    for name, draws in figure.draws.items():
        few = [name, *draws][: scale.calibration.draws]
        kinds = [config.quantizers[scale.used(each)] for each in few]
        alike = [kind.model_dump(exclude={"draw"}) for kind in kinds]
        if any(each != alike[0] for each in alike):
            raise Problem(
                f"{place}.draws.{name}: {', '.join(few)} differ in more than their draw at "
                f"{scale.description}; take those with the same settings"
            )
        if len({kind.calibration_draw for kind in kinds}) < len(few):
            raise Problem(f"{place}.draws.{name} has one draw twice; give each its own")
