"""Validation of the configuration as a whole."""

import re
from collections.abc import Iterable
from itertools import chain, product

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.scale import Text
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.corpus.sources.dialogues import DialoguesCorpus
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.sources.mix import MixCorpus
from ptq_dynamics.curvature.probes import Probe
from ptq_dynamics.figures.columns import owners
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.measure.names import TASK_METRICS
from ptq_dynamics.plan.catalogue import Catalogue
from ptq_dynamics.plan.planned import PlannedAverage
from ptq_dynamics.plan.planned_runs import PlannedRun
from ptq_dynamics.plan.site import Site
from ptq_dynamics.train.architectures.llama import Olmoe
from ptq_dynamics.train.objectives.quantized import QuantizationAware
from ptq_dynamics.trajectories.averages.merges import Interpolation
from ptq_dynamics.trajectories.averages.windows import Tails


def check(site: Site) -> None:
    """Plan all trajectories; raise `Problem`, with file and key, if the parts of the configuration
    do not fit together."""
    config, planned = site.config, site.planned
    _check_names(config, planned)
    _check_texts(config)
    for name, place in planned.places.items():
        planned[name].check(place)
    for run in planned.runs:
        _check_objective(config, run, f"{planned.places[run.name]}.objective")
    _check_quantizers(config, planned)
    _check_amounts(config, planned)
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}"
        _check_draws(config, place, figure)
        if not {*TASK_METRICS}.isdisjoint(figure.metrics):
            _check_tasks(config, planned, place, figure)
        _check_reads(config, planned, place, figure)
        _check_probes(config, place, figure)


def _check_names(config: Config, planned: Catalogue) -> None:
    scale, quantizers = config.scale, config.quantizers
    for name, figure in config.figures.items():
        place = f"config/figures.yaml: {name}.curves"
        require(place, "trajectory", figure.trajectories, planned)
    named = [*scale.quantizers, *scale.quantizers.values()]
    require(f"{config.file}: quantizers", "quantizer", named, quantizers)
    for name, shape in scale.models.items():
        require(f"{config.file}: models.{name}.corpus", "corpus", [shape.corpus], scale.corpora)
    if scale.tasks is not None:
        require(f"{config.file}: tasks.names", "task", scale.tasks.names, config.tasks)


def _check_texts(config: Config) -> None:
    """Require that nothing is trained on held-out text, and that tasks have documents."""
    place, tasks = config.file, config.scale.tasks
    corpora = config.scale.corpora
    embedded = {
        name: corpus for name, corpus in corpora.items() if isinstance(corpus, EmbeddedCorpus)
    }
    read = dict[str, str]()
    for name, corpus in corpora.items():
        if isinstance(corpus, Derived):
            require(f"{place}: corpora.{name}.of", "embedded corpus", [corpus.of], embedded)
        if isinstance(corpus, MixCorpus) and corpus.text != "descriptions":
            source = embedded[corpus.of]
            theirs = source.packages if source.source_code else ()
            held = dict.fromkeys(map(_distribution, theirs), corpus.of)
            _check_unread(f"{place}: corpora.{name}.packages", corpus.packages, held)
        if isinstance(corpus, EmbeddedCorpus | MixCorpus):
            read |= dict.fromkeys(map(_distribution, corpus.packages), name)
    if tasks is None:
        return
    _check_unread(f"{place}: tasks.others", tasks.others, read)
    others = [name for name, corpus in corpora.items() if isinstance(corpus, DatasetsCorpus)]
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


def _check_objective(config: Config, run: PlannedRun, place: str) -> None:
    corpus, objective = run.trained.corpus, run.objective
    place += f" is {objective.kind!r}"
    if objective.of_dialogues and not isinstance(config.scale.corpora[corpus], DialoguesCorpus):
        why = f"needs dialogues; corpus {corpus!r} has none; choose one with source dialogues"
        raise Problem(f"{place}, which {why}")
    if isinstance(objective, QuantizationAware) and isinstance(run.trained.model, Olmoe):
        raise Problem(f"{place}, which rounds no experts; choose a model without experts")


def _check_amounts(config: Config, planned: Catalogue) -> None:
    """Require that held-out splits have as much text as is read."""
    scale = config.scale
    shapes = {f"model {name!r}": planned.basis.shape(name) for name in scale.models}
    shapes |= {f"run {run.name!r}": run.shape for run in planned.runs}
    named = {name for figure in config.figures.values() for name in figure.quantizers}
    taken = (config.quantizers[scale.used(name)] for name in named)
    draws = max(scale.calibration.draws, *(kind.calibration_draw for kind in taken), 1)
    amounts = [(key, text) for key, text in scale if isinstance(text, Text)]
    for (whose, shape), (key, amount) in product(shapes.items(), amounts):
        place, context = f"{config.file}: {key}", shape.context
        is_calibration, count = key == "calibration", amount.count(context)
        if key == "curvature" and count % scale.curvature.batch:
            why = f"does not divide its {count} blocks of {context} tokens ({whose})"
            raise Problem(f"{place}.batch {scale.curvature.batch} {why}; change one of the two")
        least = 0 if is_calibration and scale.calibration.documents else amount.least
        needed = max(1, count) * context * (draws if is_calibration else 1)
        owner = scale.held_by(shape.corpus)
        held = getattr(scale.base_corpus(owner), amount.split)
        # A corpus without probe text is for figures without curvature.
        if (held and needed > held) or count < least:
            why = f"needs {needed:,} tokens in blocks of {context} ({whose}), at least {least}"
            there = f"corpora.{owner}.{amount.split} has {held:,} tokens"
            raise Problem(f"{place} {why}, and {there}; change one of the two")


def _check_quantizers(config: Config, planned: Catalogue) -> None:
    """Require that quantizers exist and support their models."""
    place, models = config.file, config.scale.models.items()
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
        known = [figures[shown].trajectories for shown in table.figures if shown in figures]
        shown.append((place, [*chain(*known)], [*table.quantizers]))
    for place, trajectories, names in shown:
        require(place, "quantizer", names, config.quantizers)
        for trajectory, name in product(trajectories, names):
            own = planned[trajectory].shape
            kind = config.quantizers[config.scale.used(name)]
            if (wrong := kind.refuses(own.model)) is not None:
                why = f"which cannot quantize {trajectory}: {wrong}"
                raise Problem(f"{place} has {name}, {why}; change one of the two")


def _check_draws(config: Config, place: str, figure: Figure) -> None:
    """Require that draws of a figure's quantizers differ in the draw alone."""
    scale = config.scale
    for name, draws in figure.draws.items():
        few = [name, *draws][: scale.calibration.draws]
        kinds = [config.quantizers[scale.used(draw)] for draw in few]
        others = [kind.model_dump(exclude={"draw"}) for kind in kinds]
        if others != others[:1] * len(few) or len({k.calibration_draw for k in kinds}) < len(few):
            why = f"must differ in their draw, and in nothing else, at {scale.description}"
            raise Problem(f"{place}.draws.{name}: {', '.join(few)} {why}")


def _check_reads(config: Config, planned: Catalogue, place: str, figure: Figure) -> None:
    """Require that trajectories have what a figure reads of them."""
    for what in figure.reads.of_runs:
        for name in figure.trajectories:
            if isinstance(planned[name], PlannedAverage):
                why = f"which lacks {what}; leave it out"
                raise Problem(f"{place}.curves has the average {name}, {why}")
    averages = {name: getattr(planned[name], "entry", None) for name in figure.trajectories}
    if figure.reads.ages and not any(isinstance(entry, Tails) for entry in averages.values()):
        why = "options.x is 'age', which needs one by interval or memory; add one"
        raise Problem(f"{place}.curves has no average with ages: {why}")
    for name, entry in averages.items():
        if figure.reads.lines and not isinstance(entry, Interpolation):
            why = "options.x is 'share', which needs lines between two ends; leave it out"
            raise Problem(f"{place}.curves has {name}, but {why}")
    if figure.reads.components is not None:
        models = dict[tuple[object, ...], str]()
        for name in figure.trajectories:
            models.setdefault(planned[name].form, name)
        if len(models) > 1:
            several = ", ".join(sorted(models.values()))
            raise Problem(f"{place}.curves has several models ({several}); keep one")
    if figure.reads.plane is not None:
        _check_plane(config, planned, place, figure, planned.basis.steps(figure.reads.plane))


def _check_probes(config: Config, place: str, figure: Figure) -> None:
    """Require that the scale has the probes of a figure's metrics."""
    has = {name for probe in config.scale.curvature.probes for name in probe.measured()}
    for metric in figure.metrics:
        kind = owners().get(metric)
        if kind is not None and issubclass(kind, Probe) and metric not in has:
            lacks = f"{config.file}: curvature.probes has no probe of it; add one"
            raise Problem(f"{place}.metrics has {metric}, and {lacks}")


def _check_plane(
    config: Config, planned: Catalogue, place: str, figure: Figure, previous: int
) -> None:
    """Require quantized weights, and a checkpoint `previous` steps before each end."""
    for quantizer in figure.quantizers:
        if not config.quantizers[config.scale.used(quantizer)].by_layer:
            words = f"{quantizer} has no weights to compare; name another one"
            raise Problem(f"{place}.quantizers: {words}")
    for name in figure.trajectories:
        final = planned[name].measured[-1].step or 0
        away = {final - (point.step or 0) for point in planned[name].checkpoints} - {0}
        if previous not in away:
            near = sorted(away, key=lambda steps: abs(steps - previous))
            why = f"no checkpoint so long before its end (the nearest: {near[:3]} steps)"
            raise Problem(f"{place}.landscape.previous is {previous} steps; {name} has {why}")


def _check_tasks(config: Config, planned: Catalogue, place: str, figure: Figure) -> None:
    """Require that prompts fit into the contexts of a figure's trajectories."""
    tasks = config.scale.tasks
    if tasks is None:
        raise Problem(f"{place}.metrics needs tasks, but {config.file} has no tasks")
    is_made = any(config.tasks[task].made for task in tasks.names)
    for source in figure.trajectories if is_made else ():
        read = planned[source].shape.context
        if tasks.context is not None and tasks.context > read:
            if source in config.families.own:
                why = f"{', '.join(tasks.names)} needs blocks of {tasks.context:,} tokens"
                mend = "raise --context or --tokens, or leave --tasks out"
                raise Problem(f"--tasks: {why}, and those of {source} have {read:,}; {mend}")
            why = f"{source} in {place} reads {read:,} tokens"
            raise Problem(f"{config.file}: tasks.context is {tasks.context:,}; {why}; lower it")
