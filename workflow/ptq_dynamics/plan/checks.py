"""Validation of the configuration as a whole, and removal of trajectories that a scale lacks."""

import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import chain, product
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config, DatasetsCorpus, EmbeddedCorpus, Figure, require
from ptq_dynamics.config.loading import WithFamilies
from ptq_dynamics.config.scale import Text
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.corpus.sources.mix import MixCorpus
from ptq_dynamics.measure.names import TASK_METRICS
from ptq_dynamics.train.timeline import PlannedTrajectory, Timeline


def check(config: Config, timeline: Timeline) -> None:
    """Raise `Problem`, with file and key, if parts of the configuration do not fit together."""
    _check_names(config)
    _check_texts(config)
    _check_trajectories(config.runs, timeline)
    _check_quantizers(config, timeline)
    _check_amounts(config, timeline)
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        _check_draws(config, place, figure)
        if not {*TASK_METRICS}.isdisjoint(figure.metrics):
            _check_tasks(config, timeline, place, figure)
        _check_reads(config, timeline, place, figure)


def leave_out(config: Config) -> tuple[Config, dict[str, tuple[str, ...]]]:
    """Return the configuration without what its scale lacks, and the missing trajectories by
    figure; `Problem` if a chosen figure has no others."""
    scale, every, count = config.scale, config.runs.trajectories, -1
    reasons = {**config.runs.unknown, **scale.regime.left_out}
    require(f"{_file(config)}: regime.left_out", "run", scale.regime.left_out, config.runs.runs)
    names = {*reasons}
    while len(names) > count:
        count = len(names)
        names |= {n for n, each in every.items() if not names.isdisjoint(each.sources().values())}
    kept = {
        section: {n: each for n, each in getattr(config.runs, section).items() if n not in names}
        for section in ("runs", "averages")
    }
    figures, gone = dict[str, Figure](), dict[str, tuple[str, ...]]()
    for name, figure in config.figures.items():
        gone[name] = tuple(each for each in figure.trajectories if each in names)
        left = {
            label: tuple(each for each in members if each not in names)
            for label, members in figure.curves.items()
        }
        if curves := {label: members for label, members in left.items() if members}:
            figures[name] = figure.model_copy(update={"curves": curves})
        elif name in config.choice.figures:
            why = "; ".join(dict.fromkeys(reasons[n] for n in gone[name] if n in reasons))
            raise Problem(f"{scale.description} leaves out figure {name} ({why}); choose others")
    runs = config.runs.model_copy(update=kept)
    kind, compared = f"trajectory of {scale.description}", config.backends.trajectory
    require("config/backends.yaml: trajectory", kind, [compared], runs.trajectories)
    return config.model_copy(update={"runs": runs, "figures": figures}), gone


def _file(config: Config) -> str:
    return f"config/scales/{config.choice.scale}.yaml"


def _check_names(config: Config) -> None:
    runs, scale, quantizers = config.runs, config.scale, config.quantizers
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}.curves"
        require(place, "trajectory", figure.trajectories, runs.trajectories)
    named = [*scale.quantizers, *scale.quantizers.values()]
    require(f"{_file(config)}: quantizers", "quantizer", named, quantizers)
    for name, shape in scale.models.items():
        require(f"{_file(config)}: models.{name}.corpus", "corpus", [shape.corpus], scale.corpora)
    if scale.tasks is not None:
        require(f"{_file(config)}: tasks.names", "task", scale.tasks.names, config.tasks)


def _check_texts(config: Config) -> None:
    """Require that nothing is trained on held-out text, and that tasks have documents."""
    place, tasks = _file(config), config.scale.tasks
    corpora: dict[str, Any] = dict(config.scale.corpora)
    embedded = {name: each for name, each in corpora.items() if isinstance(each, EmbeddedCorpus)}
    read = dict[str, str]()
    for name, corpus in corpora.items():
        if isinstance(corpus, Derived):
            require(f"{place}: corpora.{name}.of", "embedded corpus", [corpus.of], embedded)
        if isinstance(corpus, MixCorpus) and corpus.text != "descriptions":
            whole = embedded[corpus.of]
            theirs = whole.packages if whole.source_code else ()
            held = dict.fromkeys(map(_distribution, theirs), corpus.of)
            _check_unread(f"{place}: corpora.{name}.packages", corpus.packages, held)
        if isinstance(corpus, EmbeddedCorpus | MixCorpus):
            read |= dict.fromkeys(map(_distribution, corpus.packages), name)
    if tasks is None:
        return
    _check_unread(f"{place}: tasks.others", tasks.others, read)
    others = [name for name, each in corpora.items() if isinstance(each, DatasetsCorpus)]
    for name in (name for name in tasks.names if config.tasks[name].made):
        shots = tasks.shots_before(name)
        if shots > tasks.pool:
            raise Problem(f"{place}: tasks.pool is {tasks.pool}, and {name} has {shots} shots")
        for key in ("documents", "context"):
            if getattr(tasks, key) is None:
                raise Problem(f"{place}: tasks.{key} is null, but {name} needs it; set it")
        if others:
            why = f"needs held-out documents, and corpora.{others[0]} is not embedded"
            raise Problem(f"{place}: tasks.names has {name}, which {why}; use tasks of the harness")


def _check_unread(place: str, packages: Iterable[str], read: dict[str, str]) -> None:
    for package in packages:
        if (corpus := read.get(_distribution(package))) is not None:
            why = f"which corpora.{corpus} trains on, but its text is held out"
            raise Problem(f"{place} has {package!r}, {why}; name other packages")


def _distribution(package: str) -> str:
    return re.sub("[-_.]+", "-", package).lower()


def _check_trajectories(runs: WithFamilies, timeline: Timeline) -> None:
    made: dict[str, PlannedTrajectory] = {**runs.runs, **runs.averages}
    files = {name: "families" if name in runs.families else "runs" for name in made}
    sections = {name: "runs" if name in runs.runs else "averages" for name in made}
    places = {n: f"config/{file}.yaml: {sections[n]}.{n}" for n, file in files.items()}
    for name, each in made.items():
        for label, source in each.sources().items():
            require(f"{places[name]}.{label}", "trajectory", [source], timeline.trajectories)
    try:
        TopologicalSorter({n: each.sources().values() for n, each in made.items()}).prepare()
    except CycleError as error:
        raise Problem(f"{places[error.args[1][0]]} depends on itself") from None
    for name, each in made.items():
        each.check(places[name], timeline)


def _check_amounts(config: Config, timeline: Timeline) -> None:
    """Require that held-out splits have as much text as is read."""
    scale = config.scale
    shapes = {f"model {name!r}": scale.trained(name) for name in scale.models}
    shapes |= {f"run {n!r}": run.model_shape(timeline) for n, run in config.runs.runs.items()}
    named = {name for figure in config.figures.values() for name in figure.quantizers}
    taken = (config.quantizers[scale.used(name)] for name in named)
    draws = max(scale.calibration.draws, *(kind.calibration_draw for kind in taken), 1)
    amounts = [(key, each) for key, each in scale if isinstance(each, Text)]
    for (whose, shape), (key, amount) in product(shapes.items(), amounts):
        place, context = f"{_file(config)}: {key}", shape.context
        is_calibration, count = key == "calibration", amount.count(context)
        if key == "curvature" and count % scale.curvature.batch:
            why = f"does not divide its {count} blocks of {context} tokens ({whose})"
            raise Problem(f"{place}.batch {scale.curvature.batch} {why}; change one of the two")
        least = 0 if is_calibration and scale.calibration.documents else amount.least
        asked = max(1, count) * context * (draws if is_calibration else 1)
        owner = scale.held_by(shape.corpus)
        held = getattr(scale.whole(owner), amount.split)
        # A corpus without probe text is for figures without curvature.
        if (held and asked > held) or count < least:
            why = f"needs {asked:,} tokens in blocks of {context} ({whose}), at least {least}"
            there = f"corpora.{owner}.{amount.split} has {held:,} tokens"
            raise Problem(f"{place} {why}, and {there}; change one of the two")


def _check_quantizers(config: Config, timeline: Timeline) -> None:
    """Require that quantizers exist and support their models."""
    place, models = _file(config), config.scale.models.items()
    for (name, quantizer), (model, shape) in product(config.quantizers.items(), models):
        if (wrong := quantizer.misfit(shape.widths)) is not None:
            raise Problem(f"config/quantizers.yaml: {name}.{wrong} (model {model!r} of {place})")
    figures, backends = config.figures, config.backends
    shown = [("config/backends.yaml: groups", [backends.trajectory], [*chain(*backends.groups)])]
    for name, figure in figures.items():
        place = f"config/figures.yaml: {name}.quantizers"
        named = [*figure.quantizers, *chain(*figure.draws.values())]
        shown.append((place, figure.trajectories, named))
    for name, table in config.tables.items():
        place = f"config/tables.yaml: {name}.quantizers"
        known = [figures[each].trajectories for each in table.figures if each in figures]
        shown.append((place, [*chain(*known)], [*table.quantizers]))
    for place, trajectories, names in shown:
        require(place, "quantizer", names, config.quantizers)
        for trajectory, name in product(trajectories, names):
            own = timeline.trajectories[trajectory].model_shape(timeline)
            kind = config.quantizers[config.scale.used(name)]
            if (wrong := kind.refuses(own.model)) is not None:
                why = f"which cannot quantize {trajectory}: {wrong}"
                raise Problem(f"{place} has {name}, {why}; change one of the two")


def _check_draws(config: Config, place: str, figure: Figure) -> None:
    """Require that draws of a figure's quantizers differ in the draw alone."""
    scale = config.scale
    for name, draws in figure.draws.items():
        few = [name, *draws][: scale.calibration.draws]
        kinds = [config.quantizers[scale.used(each)] for each in few]
        others = [kind.model_dump(exclude={"draw"}) for kind in kinds]
        if others != others[:1] * len(few) or len({k.calibration_draw for k in kinds}) < len(few):
            why = f"must differ in their draw, and in nothing else, at {scale.description}"
            raise Problem(f"{place}.draws.{name}: {', '.join(few)} {why}")


def _check_reads(config: Config, timeline: Timeline, place: str, figure: Figure) -> None:
    """Require that trajectories have what a figure reads of them."""
    for what in figure.reads.of_runs:
        for name in config.runs.averages.keys() & figure.trajectories:
            why = f"which lacks {what}; leave it out"
            raise Problem(f"{place}.curves has the average {name}, {why}")
    if figure.reads.components is not None:
        models = dict[tuple[object, ...], str]()
        for name in figure.trajectories:
            shape = timeline.trajectories[name].model_shape(timeline)
            models.setdefault((shape.model.weights, timeline.tokenized(shape)), name)
        if len(models) > 1:
            several = ", ".join(sorted(models.values()))
            raise Problem(f"{place}.curves has several models ({several}); keep one")
    if figure.reads.plane is not None:
        _check_plane(config, timeline, place, figure, timeline.steps(figure.reads.plane))


def _check_plane(
    config: Config, timeline: Timeline, place: str, figure: Figure, previous: int
) -> None:
    """Require quantized weights, and a checkpoint `previous` steps before each end."""
    for quantizer in figure.quantizers:
        if not config.quantizers[config.scale.used(quantizer)].by_layer:
            words = f"{quantizer} has no weights to compare; name another one"
            raise Problem(f"{place}.quantizers: {words}")
    for name in figure.trajectories:
        final = timeline.measured(name)[-1].step or 0
        away = {final - (point.step or 0) for point in timeline.checkpoints(name)} - {0}
        if previous not in away:
            near = sorted(away, key=lambda steps: abs(steps - previous))
            why = f"no checkpoint so long before its end (the nearest: {near[:3]} steps)"
            raise Problem(f"{place}.landscape.previous is {previous} steps; {name} has {why}")


def _check_tasks(config: Config, timeline: Timeline, place: str, figure: Figure) -> None:
    """Require that prompts fit into the contexts of a figure's trajectories."""
    tasks: Any = config.scale.tasks
    if tasks is None:
        raise Problem(f"{place}.metrics needs tasks, but {_file(config)} has no tasks")
    is_made = any(config.tasks[each].made for each in tasks.names)
    for source in figure.trajectories if is_made else ():
        read = timeline.trajectories[source].model_shape(timeline).context
        if tasks.context > read:
            why = f"{source} in {place} reads {read:,} tokens"
            raise Problem(f"{_file(config)}: tasks.context is {tasks.context:,}; {why}; lower it")
