"""The job that typesets the paper, with the numbers of the configuration."""

from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel

from ptq_dynamics.base import needs
from ptq_dynamics.config import Figure, load
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.labels import rounded, short
from ptq_dynamics.paper.typeset import PaperSettings, sources
from ptq_dynamics.plan.checks import checked
from ptq_dynamics.plan.regimes import COLUMNS, beside
from ptq_dynamics.plan.site import Planner, Site
from ptq_dynamics.plan.table_jobs import TableJobs

# Keys of a scale without influence on results.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}


class PaperJob(Planner):
    """The paper on figures, claims and tables."""

    def __init__(self, site: Site, tables: TableJobs) -> None:
        super().__init__(site)
        self.tables, self.claims, self.figures = tables, tables.claims, tables.figures

    @cache
    def typeset(self) -> Job:
        """Return the paper's job, with the numbers of scale paper for comparison."""
        config, site = self.config, self.site
        choice = {**config.choice.model_dump(), "scale": "paper", "figures": "all"}
        paper = checked(load(choice, config.folder), site.root)
        scale = self.scale.model_dump(mode="json", exclude=ASIDE, exclude_none=True)
        figures = [config.figures[name] for name in config.chosen]
        shown = {run.name for figure in figures for run in self.figures.runs(figure)}
        contents = {
            "scale": {
                "name": config.choice.scale,
                "description": self.scale.description,
                "miniatures": self.scale.miniatures is not None,
            },
            "figures": {
                name: self._words(name, figure)
                for name, figure in self.tables.configured.items()
                if figure.group is None or name in config.chosen
            },
            "tables": {name: table.title for name, table in config.tables.items()},
            "numbers": dict(_leaves({**numbers(site), "paper": numbers(paper)})),
            "configuration": [(key, str(value)) for key, value in _leaves(scale)],
            "columns": COLUMNS,
            "regime": [row for row in beside(self.planned, paper.planned) if row["run"] in shown],
        }
        jobs = {needs.figure(name): self.figures.figure(name) for name in config.chosen}
        jobs |= {needs.CLAIMS: self.claims.judge(), needs.TABLES: self.tables.write()}
        jobs |= {needs.MEASUREMENTS: self.tables.collect()}
        inputs = {label: [job.manifest] for label, job in jobs.items()}
        settings = PaperSettings(told=contents, sources=sources(site.root))
        return self.make("typeset", "paper.typeset", "paper", inputs, settings)

    def _words(self, name: str, figure: Figure) -> dict[str, object]:
        """Return a figure's words; `missing` is the reason if it is not drawn."""
        gone = list(self.site.left_out.get(name, figure.trajectories))
        missing = None
        if name not in self.config.figures:
            reasons = self.site.reasons
            why = dict.fromkeys(reasons[member] for member in gone if member in reasons)
            missing = f"{self.scale.description} leaves out {', '.join(gone)}"
            missing += f" ({'; '.join(why)})" if why else ""
        elif name not in self.config.chosen:
            missing = "it was not chosen for this build"
        words = {"title": figure.title, "caption": figure.caption}
        return {**words, "without": gone, "missing": missing}


def numbers(site: Site) -> dict[str, object]:
    """Return numbers of a configuration: of the scale, models, quantizers and runs."""
    scale, seeds = site.config.scale, site.planned.basis.seeds
    first, texts = next(iter(scale.models.values())), scale.calibration
    blocks = scale.evaluation.count(first.context)
    of_scale = {
        "steps": scale.budget,
        "seeds": ", ".join(map(str, seeds)),
        "seed-count": len(seeds),
        "calibration-sets": texts.draws,
        "calibration-sequences": texts.documents or texts.count(first.context),
        "validation-blocks": blocks,
        "validation-tokens": blocks * first.context,
        "probe-blocks": scale.curvature.count(first.context),
        "trace-samples": scale.curvature.probe("sharpness").own()["trace_samples"],
        "grid": scale.landscape.side**2,
    }
    models, runs = dict[str, object](), dict[str, object]()
    for name, model in scale.models.items():
        vocabulary = scale.base_corpus(model.corpus).vocabulary
        models[name] = model.model_dump(include={"layers", "width", "context"}) | {
            "parameters": rounded(model.parameters(vocabulary)),
            "vocabulary": vocabulary,
        }
    for run in site.planned.runs:
        runs[run.name] = _plain(run.optimizer) | {
            "tokens": rounded(run.tokens_at(run.last)),
            "batch-tokens": run.trained.batch_tokens,
            "peak-rate": short(run.trunk.schedule.peak),
            "warmup-steps": run.trunk.schedule.warmup,
        }
    quantizers = {n: _plain(q.resolved(first.widths)) for n, q in site.config.quantizers.items()}
    return {"scale": of_scale, "models": models, "runs": runs, "quantizers": quantizers}


def _plain(settings: BaseModel) -> dict[str, object]:
    items = settings.model_dump(mode="json").items()
    return {key.replace("_", "-"): f"{n:g}" for key, n in items if type(n) in (int, float)}


def _leaves(content: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield all values by dotted key, lists as one text."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    else:
        yield place, ", ".join(map(str, content)) if isinstance(content, list) else content
