"""Numbers of a configuration by key, as text that cites them has them."""

from collections.abc import Iterator
from typing import Any

from ptq_dynamics.config.scale import Scale
from ptq_dynamics.figures.settings import rounded, short
from ptq_dynamics.graph.site import Site
from ptq_dynamics.paper.numbers import powers, whole

# Of a scale, what only says how jobs are run.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}


def numbers(site: Site) -> Iterator[tuple[str, str]]:
    """Of the scale, its models and quantizers, and of all runs that it trains."""
    config, timeline = site.config, site.timeline
    scale = config.scale
    first = next(iter(scale.models.values()))
    yield "scale.steps", whole(scale.budget)
    yield "scale.seeds", ", ".join(map(str, timeline.seeds))
    yield "scale.seed-count", str(len(timeline.seeds))
    yield "scale.calibration-sets", str(scale.calibration.draws)
    yield (
        "scale.calibration-sequences",
        whole(scale.calibration.documents or scale.calibration.count(first.context)),
    )
    blocks = scale.evaluation.count(first.context)
    yield "scale.validation-blocks", whole(blocks)
    yield "scale.validation-tokens", whole(blocks * first.context)
    yield "scale.probe-blocks", whole(scale.curvature.count(first.context))
    yield "scale.trace-samples", whole(scale.curvature.trace_samples)
    yield "scale.grid", whole(scale.landscape.side**2)
    for name, shape in scale.models.items():
        key = f"models.{name}"
        yield f"{key}.parameters", rounded(shape.parameters(scale.whole(shape.corpus).vocabulary))
        yield f"{key}.vocabulary", whole(scale.whole(shape.corpus).vocabulary)
        for each in ("layers", "width", "heads", "feedforward", "context"):
            yield f"{key}.{each}", whole(getattr(shape, each))
    for name, run in config.runs.runs.items():
        key, trained = f"runs.{name}", run.trained(timeline)
        start, end = run.ends(timeline)
        yield f"{key}.steps", whole(end - start)
        yield f"{key}.tokens", rounded(run.tokens(timeline))
        yield f"{key}.batch-tokens", whole(trained.batch * trained.context)
        yield f"{key}.peak-rate", powers(short(run.whole(timeline).peak(timeline)))
        yield f"{key}.warmup-steps", whole(run.whole(timeline).warmup_steps(timeline))
        optimizer: Any = run.optimizer_in(timeline)
        if (decay := getattr(optimizer, "weight_decay", None)) is not None:
            yield f"{key}.weight-decay", powers(f"{decay:g}")
    for name, quantizer in config.quantizers.items():
        kind = quantizer.resolved(first.widths)
        for each, value in kind.model_dump(mode="json").items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"quantizers.{name}.{each.replace('_', '-')}", powers(f"{value:g}")


def settings(scale: Scale) -> Iterator[tuple[str, str]]:
    """All settings of a scale that shape results, by key."""
    yield from _leaves(scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True), "")


def _leaves(content: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, list | tuple):
        yield place, ", ".join(map(str, content))
    else:
        yield place, str(content)
