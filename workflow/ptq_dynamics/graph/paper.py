"""The job that typesets the paper, over the chosen figures, claims and tables."""

from collections.abc import Iterator
from typing import Any

from ptq_dynamics.config import Figure
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.settings import rounded, short
from ptq_dynamics.graph.regime import COLUMNS, beside
from ptq_dynamics.graph.site import Site
from ptq_dynamics.paper.settings import DATA, PAPER, PaperSettings, sources

# Of a scale, what only says how jobs are run.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}


def typeset(plan: Any, theirs: Any) -> Job:
    """The paper of a plan, in a folder of its own beside the text, beside the plan of what is
    published; raises `Problem` where the text is missing."""
    site, config = plan.site, plan.site.config
    scale = config.scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True)
    figures = [config.figures[name] for name in plan.figures.chosen]
    shown = {run.name for figure in figures for run in plan.figures.runs(figure)}
    told = {
        "scale": {
            "name": config.choice.scale,
            "description": config.scale.description,
            "miniatures": config.scale.miniatures is not None,
        },
        "figures": {name: _told(plan, name, figure) for name, figure in plan.written.items()},
        "tables": {name: table.title for name, table in config.tables.items()},
        "numbers": dict(_leaves({**numbers(site), "paper": numbers(theirs.site)})),
        "configuration": [(key, str(value)) for key, value in _leaves(scale)],
        "columns": COLUMNS,
        "regime": [each for each in beside(plan, theirs) if each["run"] in shown],
    }
    needs = {f"figure {name}": plan.figures.figure(name) for name in plan.figures.chosen}
    needs |= {"claims": plan.claims.judge(), "tables": plan.tables.write()}
    needs |= {"measurements": plan.figures.collect()}
    inputs = {label: [job.manifest] for label, job in needs.items()}
    settings, files = PaperSettings(told=told, sources=sources(site.root)), (PAPER, DATA)
    return site.make("typeset", "paper.typeset", "paper", inputs, settings, files)


def _told(plan: Any, name: str, figure: Figure) -> dict[str, Any]:
    """What the text is told of a figure; `missing`: why it is not drawn, where it is not."""
    config = plan.site.config
    # Of a figure that is left out whole, all of its trajectories are.
    gone = list(plan.site.left_out.get(name, figure.trajectories))
    missing = None
    if name not in config.figures:
        reasons = {**config.runs.unknown, **config.scale.regime.left_out}
        why = dict.fromkeys(reasons[each] for each in gone if each in reasons)
        missing = f"{config.scale.description} leaves out {', '.join(gone)}"
        missing += f" ({'; '.join(why)})" if why else ""
    elif name not in plan.figures.chosen:
        missing = "it was not chosen for this build"
    words = {"title": figure.title, "caption": figure.caption}
    return {**words, "without": gone, "missing": missing}


def numbers(site: Site) -> dict[str, Any]:
    """Numbers of a configuration: of the scale, its models and quantizers, and of all runs that it
    trains."""
    config, timeline, scale = site.config, site.timeline, site.config.scale
    first = next(iter(scale.models.values()))
    texts, blocks = scale.calibration, scale.evaluation.count(first.context)
    found: dict[str, Any] = {"models": {}, "runs": {}, "quantizers": {}}
    found["scale"] = {
        "steps": scale.budget,
        "seeds": ", ".join(map(str, timeline.seeds)),
        "seed-count": len(timeline.seeds),
        "calibration-sets": texts.draws,
        "calibration-sequences": texts.documents or texts.count(first.context),
        "validation-blocks": blocks,
        "validation-tokens": blocks * first.context,
        "probe-blocks": scale.curvature.count(first.context),
        "trace-samples": scale.curvature.trace_samples,
        "grid": scale.landscape.side**2,
    }
    for name, shape in scale.models.items():
        vocabulary = scale.whole(shape.corpus).vocabulary
        found["models"][name] = shape.model_dump(include={"layers", "width", "context"}) | {
            "parameters": rounded(shape.parameters(vocabulary)),
            "vocabulary": vocabulary,
        }
    for name, run in config.runs.runs.items():
        trained, whole = run.trained(timeline), run.whole(timeline)
        found["runs"][name] = {
            "tokens": rounded(run.tokens(timeline)),
            "batch-tokens": trained.batch * trained.context,
            "peak-rate": short(whole.peak(timeline)),
            "warmup-steps": whole.warmup_steps(timeline),
        }
        found["runs"][name] |= _plain(run.optimizer_in(timeline))
    for name, quantizer in config.quantizers.items():
        found["quantizers"][name] = _plain(quantizer.resolved(first.widths))
    return found


def _plain(settings: Any) -> dict[str, str]:
    """Those that are numbers, by key."""
    items = settings.model_dump(mode="json").items()
    return {key.replace("_", "-"): f"{n:g}" for key, n in items if type(n) in (int, float)}


def _leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """All values by key, those of lists as one text."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    else:
        yield place, ", ".join(map(str, content)) if isinstance(content, list) else content
