"""Checks of the configuration that concern more than one file or key."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, product

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import RunsTable
from ptq_dynamics.config import (
    Config,
    DatasetsCorpus,
    Derived,
    EmbeddedCorpus,
    MixCorpus,
    Runs,
    Stage,
    Whole,
    require,
)
from ptq_dynamics.graph.shown import check_figures
from ptq_dynamics.train.timeline import PlannedTrajectory, Timeline

# One step with more would be closer to changing the sign of weights than to decay.
LARGEST_DECAY = 0.5


def check(timeline: Timeline) -> None:
    """Raise `Problem`, naming file and key, when parts of the configuration do not fit together."""
    config = timeline.config
    _check_names(config)
    _check_corpora(config)
    _check_tasks(config)
    runs, regime = config.runs, config.scale.regime
    every: list[tuple[str, str, PlannedTrajectory]]
    every = [("runs", name, run) for name, run in runs.runs.items()]
    every += [("averages", name, average) for name, average in runs.averages.items()]
    for section, name, trajectory in every:
        with _place(runs, section, name) as place:
            for label, source in trajectory.sources().items():
                require(f"{place}.{label}", "trajectory", [source], timeline.names)
            _check_circle(timeline, place, name)
            if isinstance(trajectory, Whole):
                require(f"{place}.model", "model", [trajectory.model], timeline.scale.models)
    for section, name, trajectory in every:
        with _place(runs, section, name) as place:
            if isinstance(trajectory, Whole | Stage) and name not in regime.left_out:
                _check_weight_decay(timeline, place, trajectory)
            trajectory.check(place, timeline)
    _check_quantizers(timeline)
    _check_amounts(timeline)
    check_figures(timeline)


def _file(config: Config) -> str:
    return f"config/scales/{config.choice.scale}.yaml"


def _check_weight_decay(timeline: Timeline, place: str, run: Whole | Stage) -> None:
    peak = run.used_lr if isinstance(run, Stage) else run.peak(timeline)
    taken = run.optimizer_in(timeline).per_step(peak, peak)
    if taken > LARGEST_DECAY:
        raise Problem(
            f"{place}: at {timeline.scale.description} its weight decay takes {taken:g} of a "
            f"weight in one step, more than {LARGEST_DECAY}; lower it, or name the run in "
            "regime.left_out of the scale"
        )


@contextmanager
def _place(runs: Runs, section: str, name: str) -> Iterator[str]:
    """Key of a trajectory as it stands in the file, and problems that say which of a grid it is."""
    written = runs.written(section, name)
    try:
        yield f"{runs.file(name)}: {section}.{written}"
    except Problem as problem:
        if written == name:
            raise
        raise Problem(f"{problem} (in {name})") from None


def _check_circle(timeline: Timeline, place: str, name: str) -> None:
    waiting, seen = [name], set()
    while waiting:
        for source in timeline.trajectory(waiting.pop()).sources().values():
            if source == name:
                raise Problem(f"{place} is made from itself; give it another source")
            if source in timeline.names and source not in seen:
                seen.add(source)
                waiting.append(source)


def _check_names(config: Config) -> None:
    """That what files name is there."""
    runs, scale, backends = config.runs, config.scale, config.backends
    if both := {*runs.runs} & {*runs.averages}:
        raise Problem(f"config/runs.yaml: {min(both)!r} is the name of a run and of an average")
    chosen = [] if config.choice.figures == "all" else config.choice.figures
    require("config/config.yaml: figures", "figure", chosen, config.figures)
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        require(f"{place}.curves", "trajectory", figure.trajectories, runs.trajectories)
        named = [*figure.quantizers, *chain.from_iterable(figure.draws.values())]
        require(f"{place}.quantizers", "quantizer", named, config.quantizers)
    place = "config/backends.yaml"
    require(f"{place}: trajectory", "trajectory", [backends.trajectory], runs.trajectories)
    named = [*chain.from_iterable(backends.groups)]
    require(f"{place}: groups", "quantizer", named, config.quantizers)
    place = _file(config)
    require(f"{place}: regime.left_out", "run", scale.regime.left_out, runs.runs)
    require(f"{place}: regime.final_losses", "run", scale.regime.final_losses, runs.runs)
    named = [*scale.quantizers, *scale.quantizers.values()]
    require(f"{place}: quantizers", "quantizer", named, config.quantizers)
    for name, shape in scale.models.items():
        require(f"{place}: models.{name}.corpus", "corpus", [shape.corpus], scale.corpora)


def _check_corpora(config: Config) -> None:
    """That nothing is trained on what is held out."""
    place, corpora = f"{_file(config)}: corpora", config.scale.corpora
    embedded = {name: each for name, each in corpora.items() if isinstance(each, EmbeddedCorpus)}
    for name, mix in corpora.items():
        if isinstance(mix, Derived):
            require(f"{place}.{name}.of", "embedded corpus", [mix.of], embedded)
        if not isinstance(mix, MixCorpus) or mix.text == "descriptions":
            continue
        theirs = {*map(_distribution, embedded[mix.of].packages)}
        both = [package for package in mix.packages if _distribution(package) in theirs]
        # Some of those source files are held out.
        if both and embedded[mix.of].source_code:
            raise Problem(
                f"{place}.{name}.packages has {both[0]!r}, whose source files {mix.of} has too "
                "(source_code), some of them held out; name packages that it has not"
            )


def _check_tasks(config: Config) -> None:
    place, tasks, corpora = f"{_file(config)}: tasks", config.scale.tasks, config.scale.corpora
    if tasks is None:
        return
    require(f"{place}.names", "task", tasks.names, config.tasks)
    read = {
        _distribution(package): name
        for name, corpus in corpora.items()
        if isinstance(corpus, EmbeddedCorpus | MixCorpus)
        for package in corpus.packages
    }
    for package in tasks.others:
        if (corpus := read.get(_distribution(package))) is not None:
            raise Problem(
                f"{place}.others has {package!r}, which corpora.{corpus} reads; name packages that "
                "nothing is trained on"
            )
    made = [name for name in tasks.names if config.tasks[name].made]
    if not made:
        return
    for name in made:
        if tasks.shots_before(name) > tasks.pool:
            raise Problem(
                f"{place}.pool is {tasks.pool}, and {name} has {tasks.shots_before(name)} shots, "
                "which are drawn from it; raise it, or lower shots"
            )
    if made and (tasks.documents is None or tasks.context is None):
        raise Problem(f"{place}: {made[0]} is made of documents; set documents and context")
    public = [name for name, each in corpora.items() if isinstance(each, DatasetsCorpus)]
    if made and public:
        raise Problem(
            f"{place}.names has {made[0]}, which is made of documents that embedded corpora hold "
            f"out, and corpora.{public[0]} is none; name tasks of the harness"
        )


def _distribution(package: str) -> str:
    """A package's name as all its spellings have it."""
    return re.sub("[-_.]+", "-", package).lower()


def _check_amounts(timeline: Timeline) -> None:
    """That held-out splits have as much text as is read of them."""
    config, scale = timeline.config, timeline.scale
    shapes = {f"model {name!r}": scale.trained(name) for name in scale.models}
    for name, run in config.runs.runs.items():
        shapes[f"run {name!r}"] = run.model_shape(timeline)
    named = {name for figure in config.figures.values() for name in figure.quantizers}
    taken = (config.quantizers[scale.quantizers.get(name, name)] for name in named)
    draws = max(scale.calibration.draws, *(kind.calibration_draw for kind in taken), 1)
    for whose, shape in shapes.items():
        for key, amount in scale.amounts.items():
            place, context = f"{_file(config)}: {key}", shape.context
            is_calibration = key == "calibration"
            count = amount.count(context)
            least = 0 if is_calibration and scale.calibration.documents else amount.least
            if count < least:
                raise Problem(
                    f"{place} has {count} blocks of {context} tokens ({whose}), and must have "
                    f"{least}; raise it"
                )
            if key == "curvature" and count % scale.curvature.batch:
                raise Problem(
                    f"{place}.batch {scale.curvature.batch} does not divide its {count} blocks of "
                    f"{context} tokens ({whose}), and the error over batches needs equal ones; "
                    "change one of the two"
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
    config = timeline.config
    for name, quantizer in config.quantizers.items():
        for model, shape in config.scale.models.items():
            if (wrong := quantizer.misfit(shape.widths)) is not None:
                raise Problem(
                    f"config/quantizers.yaml: {name}.{wrong} (model {model!r} at "
                    f"{config.scale.description})"
                )
    place, backends = "config/backends.yaml: groups", config.backends
    for group in backends.groups:
        bits = {name: config.quantizers[name].compared_bits for name in group}
        for name, found in bits.items():
            if found is None or found != bits[group[0]]:
                raise Problem(
                    f"{place} has {name} beside {group[0]}, and only GPTQ with as many bits is "
                    "compared; put it into another group"
                )
    shown = [(place, [backends.trajectory], tuple(chain.from_iterable(backends.groups)))]
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}.quantizers"
        shown.append((place, figure.trajectories, figure.quantizers))
    for name, table in config.tables.items():
        if isinstance(table, RunsTable):
            place = f"config/tables.yaml: {name}.quantizers"
            require(place, "quantizer", table.quantizers, config.quantizers)
            known = [config.figures[each] for each in table.figures if each in config.figures]
            shown += [(place, figure.trajectories, table.quantizers) for figure in known]
    for place, trajectories, quantizers in shown:
        for trajectory, name in product(trajectories, quantizers):
            kind = config.quantizers[config.scale.quantizers.get(name, name)]
            own = timeline.trajectory(trajectory)
            wrong = kind.refuses(own.model_shape(timeline).model)
            if wrong is not None:
                raise Problem(
                    f"{place} has {name}, which cannot quantize {trajectory}: {wrong}; take "
                    "another quantizer or other trajectories"
                )
