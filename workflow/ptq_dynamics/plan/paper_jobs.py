"""The jobs that typeset the paper, with the numbers of the configuration, and write the page."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.config import load
from ptq_dynamics.engine.job import Job
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.figures.labels import rounded, short
from ptq_dynamics.paper.typeset import PaperSettings, sources
from ptq_dynamics.plan.checks import check
from ptq_dynamics.plan.claim_jobs import ClaimJobs
from ptq_dynamics.plan.dimensionless import COLUMNS, beside_paper
from ptq_dynamics.plan.site import Planner, Rule, Site

# Keys of a scale without influence on results.
ASIDE = {"resources", "threads", "jobs_per_device", "warm", "keep", "shard", "log_every"}
TEMPLATE = Path(__file__).parents[1] / "report/page.html"


class PageSettings(Strict):
    """Contents of the page."""

    description: str  # of the scale
    figures: tuple[tuple[str, str, str], ...]  # names, titles and captions
    tables: tuple[tuple[str, str], ...]  # names and titles
    template: str


TYPESET = Rule[PaperSettings]("typeset", "<paper>/", "paper.typeset")
REPORT = Rule[PageSettings]("report", "<results>/index.", "report.page")
RULES = (TYPESET, REPORT)


class PaperJobs(Planner):
    """The paper and the page on the chosen figures, claims and tables."""

    def __init__(self, site: Site, claims: ClaimJobs) -> None:
        super().__init__(site)
        self.claims, self.figures = claims, claims.figures

    @cache
    def typeset(self) -> Job:
        """Return the paper's job, with the numbers of scale paper for comparison."""
        config, site = self.config, self.site
        choice = {**config.choice.model_dump(), "scale": "paper", "figures": "all"}
        paper = Site(load(choice, config.folder), site.root)
        check(paper)
        rows = beside_paper(self.planned, paper.planned)
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
                for name, figure in site.configured.items()
                if figure.group is None or name in config.chosen
            },
            "tables": {name: table.title for name, table in config.tables.items()},
            "numbers": dict(_leaves({**numbers(site), "paper": numbers(paper)})),
            "configuration": [(key, str(value)) for key, value in _leaves(scale)],
            "columns": COLUMNS,
            "regime": [row for row in rows if row["run"] in shown],
        }
        inputs = self._outcomes()
        inputs[needs.MEASUREMENTS] = [self.claims.measurements.collect().manifest]
        settings = PaperSettings(contents=contents, sources=sources(site.root))
        return self.make(TYPESET, "paper", inputs, settings)

    @cache
    def page(self) -> Job:
        """Return the job of the page; raises `Problem` if a claim or table is wrong."""
        figures = [(name, self.config.figures[name]) for name in sorted(self.config.chosen)]
        settings = PageSettings(
            description="; ".join(filter(None, [self.scale.description, self.scale.note])),
            figures=tuple((n, f.title, " ".join(f.caption.split())) for n, f in figures),
            tables=tuple((name, table.title) for name, table in self.config.tables.items()),
            template=TEMPLATE.read_text(encoding="utf-8"),
        )
        return self.make(REPORT, "index", self._outcomes(), settings)

    def _outcomes(self) -> dict[str, list[str]]:
        """Return the manifests of the chosen figures, of claims and of tables, by label."""
        jobs = {needs.figure(name): self.figures.figure(name) for name in self.config.chosen}
        jobs |= {needs.CLAIMS: self.claims.judge(), needs.TABLES: self.claims.tabulate()}
        return {label: [job.manifest] for label, job in jobs.items()}

    def _words(self, name: str, figure: Figure) -> dict[str, object]:
        """Return a figure's words; `missing` is the reason if it is not drawn."""
        gone, missing = self.site.left_out(name), None
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
