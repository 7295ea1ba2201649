"""Checks of the configuration that concern more than one file or key."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, product

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.settings import RunsTable
from ptq_dynamics.config import (
    Config,
    Corpus,
    DatasetsCorpus,
    Derived,
    EmbeddedCorpus,
    MadeTask,
    MixCorpus,
    Runs,
    Stage,
    Whole,
    require,
)
from ptq_dynamics.graph.shown import check_figures
from ptq_dynamics.graph.timeline import Timeline


def check(timeline: Timeline) -> None:
    """Raise `Problem`, naming file and key, when parts of the configuration do not fit together."""
    config = timeline.config
    _check_names(config)
    runs = config.runs
    for key, trajectories in (("runs", runs.runs), ("averages", runs.averages)):
        for name, trajectory in trajectories.items():
            with _place(runs, key, name) as place:
                for label, source in trajectory.sources().items():
                    require(f"{place}.{label}", "trajectory", [source], timeline.names)
                _check_circle(timeline, place, name)
    left_out = config.scale.regime.left_out
    place = f"config/scales/{config.choice.scale}.yaml: regime.left_out"
    require(place, "run", left_out, runs.runs)
    published = config.scale.regime.final_losses
    require(place.replace("left_out", "final_losses"), "run", published, runs.runs)
    for name, run in runs.runs.items():
        with _place(runs, "runs", name) as place:
            if isinstance(run, Whole):
                require(f"{place}.model", "model", [run.model], timeline.scale.models)
            if isinstance(run, Whole | Stage) and name not in left_out:
                peak = run.used_lr if isinstance(run, Stage) else run.peak(timeline)
                _check_weight_decay(timeline, place, run, peak)
    for key, trajectories in (("runs", runs.runs), ("averages", runs.averages)):
        for name, trajectory in trajectories.items():
            with _place(runs, key, name) as place:
                trajectory.check(place, timeline)
    _check_quantizers(timeline)
    _check_amounts(timeline)
    check_figures(timeline)


# One step with more would be closer to changing the sign of weights than to decay.
LARGEST_DECAY = 0.5


def _check_weight_decay(timeline: Timeline, place: str, run: Whole | Stage, peak: float) -> None:
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
    runs, averages = config.runs.runs, config.runs.averages
    both = sorted(set(runs) & set(averages))
    if both:
        raise Problem(f"config/runs.yaml: {both[0]!r} is the name of a run and of an average")
    chosen, quantizers = config.choice.figures, config.quantizers
    require(
        "config/config.yaml: figures", "figure", [] if chosen == "all" else chosen, config.figures
    )
    trajectories = config.runs.trajectories
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        require(f"{place}.curves", "trajectory", figure.trajectories, trajectories)
        require(f"{place}.quantizers", "quantizer", figure.quantizers, quantizers)
        for each, draws in figure.draws.items():
            require(f"{place}.draws.{each}", "quantizer", draws, quantizers)
    place, backends = "config/backends.yaml", config.backends
    require(f"{place}: trajectory", "trajectory", [backends.trajectory], trajectories)
    require(f"{place}: groups", "quantizer", chain.from_iterable(backends.groups), quantizers)
    scale = f"config/scales/{config.choice.scale}.yaml"
    taken = config.scale.quantizers
    require(f"{scale}: quantizers", "quantizer", [*taken, *taken.values()], quantizers)
    for name, shape in config.scale.models.items():
        require(f"{scale}: models.{name}.corpus", "corpus", [shape.corpus], config.scale.corpora)
    _check_mixes(f"{scale}: corpora", config.scale.corpora)
    _check_tasks(f"{scale}: tasks", config)


def _check_mixes(place: str, corpora: Mapping[str, Corpus]) -> None:
    embedded = {name: each for name, each in corpora.items() if isinstance(each, EmbeddedCorpus)}
    for name, mix in corpora.items():
        if isinstance(mix, Derived):
            require(f"{place}.{name}.of", "embedded corpus", [mix.of], embedded)
        if not isinstance(mix, MixCorpus):
            continue
        theirs = embedded[mix.of]
        # Some of those source files are held out.
        if theirs.source_code and mix.text != "descriptions":
            there = {*map(_distribution, theirs.packages)}
            both = [package for package in mix.packages if _distribution(package) in there]
            if both:
                raise Problem(
                    f"{place}.{name}.packages has {both[0]!r}, whose source files {mix.of} has too "
                    "(source_code), some of them held out; name packages that it has not"
                )


def _check_tasks(place: str, config: Config) -> None:
    tasks, corpora = config.scale.tasks, config.scale.corpora
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
    made = [name for name in tasks.names if isinstance(config.tasks[name], MadeTask)]
    if not made:
        return
    for name in made:
        if tasks.shots_before(name) > tasks.pool:
            raise Problem(
                f"{place}.pool is {tasks.pool}, and {name} has {tasks.shots_before(name)} shots, "
                "which are drawn from it; raise it, or lower shots"
            )
    for key in ("documents", "context"):
        if getattr(tasks, key) is None:
            raise Problem(f"{place}.{key} is null, and {made[0]} is made of documents; set it")
    if public := [name for name, each in corpora.items() if isinstance(each, DatasetsCorpus)]:
        raise Problem(
            f"{place}.names has {made[0]}, which is made of documents that embedded corpora hold "
            f"out, and corpora.{public[0]} is none; name tasks of the harness"
        )


def _distribution(package: str) -> str:
    """A package's name as all its spellings have it."""
    return re.sub("[-_.]+", "-", package).lower()


def _check_amounts(timeline: Timeline) -> None:
    config, scale = timeline.config, timeline.scale
    file = f"config/scales/{config.choice.scale}.yaml"
    shapes = {f"model {name!r}": scale.trained(name) for name in scale.models}
    for name, run in config.runs.runs.items():
        shapes.setdefault(f"run {name!r}", run.model_shape(timeline))
    named = {name for figure in config.figures.values() for name in figure.quantizers}
    taken = (config.quantizers[scale.quantizers.get(name, name)] for name in named)
    draw = max((kind.calibration_draw for kind in taken), default=1)
    for whose, shape in shapes.items():
        for key, amount in scale.amounts.items():
            count = amount.count(shape.context)
            if count < amount.least:
                raise Problem(
                    f"{file}: {key} has {count} blocks of {shape.context} tokens ({whose}), and "
                    f"must have {amount.least}; raise it"
                )
            sets = max(amount.sets, draw) if key == "calibration" else amount.sets
            asked = max(1, count) * shape.context * sets
            if key == "curvature" and count % scale.curvature.batch:
                raise Problem(
                    f"{file}: curvature.batch {scale.curvature.batch} does not divide its {count} "
                    f"blocks of {shape.context} tokens ({whose}), and the error over batches needs "
                    "equal ones; change one of the two"
                )
            owner = scale.held_by(shape.corpus)
            held = getattr(scale.whole(owner), amount.split)
            if asked > held:
                raise Problem(
                    f"{file}: {key} asks for {asked:,} tokens in blocks of {shape.context} ("
                    f"{whose}), but corpora.{owner}.{amount.split} has {held:,}; lower the one or "
                    "raise the other"
                )


def _check_quantizers(timeline: Timeline) -> None:
    config = timeline.config
    for name, quantizer in config.quantizers.items():
        for model, shape in config.scale.models.items():
            wrong = quantizer.misfit(shape.widths)
            if wrong is not None:
                raise Problem(
                    f"config/quantizers.yaml: {name}.{wrong} (model {model!r} at "
                    f"{config.scale.description})"
                )
    shown = [
        (f"config/figures.yaml: {name}.quantizers", figure.trajectories, figure.quantizers)
        for name, figure in config.figures.items()
    ]
    backends = config.backends
    for group in backends.groups:
        bits = {name: config.quantizers[name].compared_bits for name in group}
        for name, found in bits.items():
            if found is None or found != bits[group[0]]:
                raise Problem(
                    f"config/backends.yaml: groups has {name} beside {group[0]}, and only GPTQ "
                    "with as many bits is compared; put it into another group"
                )
    named = tuple(chain.from_iterable(backends.groups))
    shown.append(("config/backends.yaml: groups", [backends.trajectory], named))
    for name, table in config.tables.items():
        if isinstance(table, RunsTable):
            place = f"config/tables.yaml: {name}.quantizers"
            require(place, "quantizer", table.quantizers, config.quantizers)
            known = (config.figures[each] for each in table.figures if each in config.figures)
            shown += [(place, figure.trajectories, table.quantizers) for figure in known]
    for place, trajectories, quantizers in shown:
        for trajectory, name in product(trajectories, quantizers):
            used = config.scale.quantizers.get(name, name)
            trained = timeline.trajectory(trajectory).model_shape(timeline)
            kind, public = config.quantizers[used], config.runs.public
            wrong = kind.refuses(trained.model)
            run = timeline.trajectory(trajectory).run(trajectory, timeline)
            if run in public and public[run].code is not None and kind.tool is not None:
                wrong = f"it comes with code of its own, which {kind.tool} is not given"
            if wrong is not None:
                raise Problem(
                    f"{place} has {name}, which cannot quantize {trajectory}: {wrong}; take "
                    "another quantizer or other trajectories"
                )
