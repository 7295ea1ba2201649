"""Building a project of own checkpoints, and its page."""

from collections.abc import Iterator
from pathlib import Path

from pandas import DataFrame, Series

from ptq_dynamics.base.checkpoints import ROUTER
from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.project import FIGURE, RUN
from ptq_dynamics.corpus.splits import BEGIN
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.labels import FINDING, METHODS, PICTURES
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import ACCURACY, FULL_PRECISION, MEASUREMENTS
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance.state import find
from ptq_dynamics.train.architectures.given import Given

REPORT = Path("README.md")
# Tables of metrics on the page: words, columns of the index, factor and format.
BESIDE: dict[str, tuple[str, list[str], int, str]] = {
    "kl_divergence": ("KL divergence from full precision (nats per token)", [], 1, ".4g"),
    "top1_agreement": (
        "Tokens whose most probable prediction is that of full precision, in per cent",
        [],
        100,
        ".2f",
    ),
    ACCURACY: ("Accuracy in per cent", ["task"], 100, ".1f"),
}


def measure(profile: Path, text: str, left: list[str]) -> list[Path]:
    """Measure missing or outdated checkpoints of the project in this folder; print the finding.
    The page has the lines `left` on models that are not measured. Return the written files."""
    plan = chosen.plan()
    figure = plan.figures.figure(FIGURE)
    quantizers = [*dict.fromkeys(series.quantizer for series in figure.settings.series)]
    points, shape = plan.site.planned[RUN].measured, plan.site.planned[RUN].shape
    assert isinstance(shape.model, Given)
    tokens = shape.context * plan.site.config.scale.evaluation.count(shape.context)
    about = f"{len(points)} checkpoint{'s' * (len(points) > 1)} of {shape.model.name}"
    about += f" ({shape.model.total:,} parameters)"
    about += f", each in {', '.join(quantizers)}, on {tokens:,} tokens of {text}"
    about += f" in blocks of {shape.context:,}"
    print(about)
    if any(finding.state != "up to date" for finding in find(plan, plan.last())):
        _build(plan, quantizers, profile)
    print(f"\n{_report(plan, figure, f'{about}.', left)}\n")
    return [REPORT, Path(plan.site.results, MEASUREMENTS)]


def _build(plan: Plan, quantizers: list[str], profile: Path) -> None:
    """Build the first checkpoint, print an estimate of the time, and build the rest."""
    first, seed = next(iter(plan.site.planned[RUN].shards)), plan.measuring.seed(RUN)
    jobs = [plan.measuring.measure(RUN, name, first, seed) for name in quantizers]
    curves = plan.site.config.figures[FIGURE].trajectories
    others = sum(len(plan.site.planned[curve].measured) for curve in curves) - 1
    if others and not all(job.paths.record.exists() for job in jobs):
        chosen.build(Path(), [job.manifest for job in jobs], profile)
        records = [record.read(job.paths.record) for job in jobs]
        seconds, memory = sum(r.seconds for r in records), max(r.peak_memory for r in records)
        took = f"the first checkpoint took {seconds:.0f} s and {memory / 1e9:.1f} GB"
        rest = f"take about {others * seconds / 60:.1f} min one after the other"
        print(f"{took}; {others} more, averages included, {rest}", flush=True)
    chosen.build(Path(), ["figures"], profile)


def _report(plan: Plan, figure: Job, about: str, left: list[str]) -> str:
    """Write a page with picture, finding, settings and numbers; return finding and settings."""
    site, words = plan.site, str(manifest.read(figure.paths.manifest).facts[FINDING])
    table = measurements.read(Path(site.results) / MEASUREMENTS)
    is_full = table.quantizer == FULL_PRECISION
    metric = is_full.map({True: "loss", False: "quantization_error"})
    shown = table[table.metric == metric].assign(what=table.quantizer.where(~is_full, "loss"))
    shown = shown.sort_values("trajectory", key=_others, kind="stable")
    key = ["trajectory", "checkpoint_id"]
    values = shown.pivot_table(index=key, columns="what", values="value", sort=False)
    places = shown.drop_duplicates(key).set_index(key)[["step", "tokens", "lr", "phase"]]
    errors = 100 * values.drop(columns="loss").add_suffix(" (%)")
    numbers, own = places.join([values.loss, errors]), places.loc[[RUN]].dropna(subset="step")
    if unknown := int(own.lr.isna().sum()):
        words += (
            f" The learning rate of {unknown} of {len(own)} checkpoints is not known; give --lr."
        )
    text = numbers.reset_index(0).to_string(index=False, na_rep="", float_format="{:.4g}".format)
    of = site.config.figures[FIGURE]
    picture = f"![{of.title}]({site.pictures}/{FIGURE}.{PICTURES[-1]})"
    words += "\n\n" + " ".join([about, _begin(plan), *_settings(plan, table[~is_full])])
    parts = [f"# {of.title}", picture, of.caption, words, f"```\n{text}\n```"]
    parts += ["\n".join(f"- {line}" for line in left)] * bool(left)
    for beside, (what, index, factor, form) in BESIDE.items():
        rows = table[table.metric == beside].sort_values("trajectory", key=_others, kind="stable")
        if not len(rows):
            continue
        pairs = zip(factor * rows.value, factor * rows.stderr, strict=True)
        cells = [f"{mean:{form}} ± {error:{form}}" for mean, error in pairs]
        rows = rows.assign(cell=cells)
        wide = rows.pivot(index=[*key, *index], columns="quantizer", values="cell")
        order = wide.loc[rows.set_index([*key, *index]).index.unique(), [*rows.quantizer.unique()]]
        parts += [f"{what}, ± one standard error:", f"```\n{order.to_string()}\n```"]
    write_atomically(REPORT, "\n\n".join(parts) + "\n")
    return words


def _others(names: Series) -> Series:
    """Return whether rows are not of the run, which goes first."""
    return names != RUN


def _begin(plan: Plan) -> str:
    """Return a sentence on the tokens with which blocks of text begin."""
    facts = manifest.read(plan.trajectories.corpus(RUN).paths.manifest).facts
    if BEGIN not in facts:
        return "Blocks begin without BOS."
    if not facts[BEGIN]:
        return "Blocks begin without BOS, because the tokenizer adds none."
    return f"Each block begins with BOS (token {', '.join(map(str, facts[BEGIN]))})."


def _settings(plan: Plan, table: DataFrame) -> Iterator[str]:
    """Yield a sentence on each quantizer, and on the matrices that it left in full precision."""
    *_, last = plan.site.planned[RUN].shards
    kinds = plan.site.config.quantizers
    for one in table.drop_duplicates("quantizer").to_dict("records"):
        job = plan.measuring.measure(RUN, one["quantizer"], last, plan.measuring.seed(RUN))
        method = METHODS.get(one["method"], one["method"].upper())
        words = f"{one['quantizer']} is {method} with {one['bits']} bits"
        if isinstance(size := one["group_size"], int):
            words += f" and groups of {size} weights"
        words += ", with another calibration set" * (
            getattr(kinds[one["quantizer"]], "draw", 1) > 1
        )
        for left in list(manifest.read(job.paths.manifest).facts.get("left_out", {}).values())[:1]:
            kind = "routers" if all(map(ROUTER.search, left)) else "matrices"
            words += f"; {len(left)} {kind} stay in full precision, such as {left[0]}"
        yield f"{words}."
