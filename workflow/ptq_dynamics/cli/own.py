"""Building a project of own checkpoints, and its page."""

import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from math import log
from pathlib import Path

import psutil
from pandas import DataFrame

from ptq_dynamics.base.checkpoints import ROUTER
from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.project import FIGURE, RUN, SCALE
from ptq_dynamics.config import read_yaml
from ptq_dynamics.corpus.splits import BEGIN, VALIDATION
from ptq_dynamics.engine import manifest, record, warm
from ptq_dynamics.engine.job import Job, stale
from ptq_dynamics.engine.lease import visible
from ptq_dynamics.engine.record import Record
from ptq_dynamics.figures.labels import FINDING, METHODS, PICTURES
from ptq_dynamics.measure import measurements
from ptq_dynamics.measure.names import ACCURACY, FULL_PRECISION, MEASUREMENTS
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.own_checkpoints import sampled_checkpoints
from ptq_dynamics.provenance.state import find
from ptq_dynamics.train.architectures.given import Given

REPORT = Path("README.md")
SHARE = 0.9  # of a GPU's memory that jobs may fill
ROUNDED = 1e-5  # relative error of a loss in float32
# Tables of metrics on the page: words, columns of the index, factor and format.
TOP1 = "Tokens whose most probable prediction is that of full precision, in per cent"
BESIDE: dict[str, tuple[str, list[str], int, str]] = {
    "kl_divergence": ("KL divergence from full precision (nats per token)", [], 1, ".4g"),
    "top1_agreement": (TOP1, [], 100, ".2f"),
    ACCURACY: ("Accuracy in per cent", ["task"], 100, ".1f"),
}


def measure(profile: Path, text: str, jobs: int | None, left: list[str]) -> list[Path]:
    """Measure missing or outdated checkpoints of the project in this folder, in so many `jobs` at
    once; print the finding. The page has the lines `left` on models that are not measured. Return
    the written files."""
    plan = chosen.plan()
    runs = plan.site.config.families.own
    print(_about(plan, {run: len(plan.site.planned[run].measured) for run in runs}, text))
    if any(finding.state != "up to date" for finding in find(plan, plan.targets())):
        before = _sampled(plan)
        try:
            _build(plan, profile, jobs)
        except Problem:
            if before == _sampled(plan):
                raise
            again = "checkpoints came or went meanwhile; run the same command again"
            raise Problem(again) from None
    words = _report(plan, text, left)
    print("", words.replace("\\$", "$"), "", sep="\n")
    return [REPORT, Path(plan.site.results, MEASUREMENTS)]


def _about(plan: Plan, counts: Mapping[str, int], text: str) -> str:
    """Return words on how many checkpoints are measured, in which ways and on which text."""
    parts, runs = list[str](), plan.site.config.families.own
    for run, number in counts.items():
        shape = plan.site.planned[run].shape
        assert isinstance(shape.model, Given)
        tokens = shape.context * plan.site.config.scale.evaluation.count(shape.context)
        count = f"{number} checkpoint{'s' * (number > 1)}"
        parts.append(f"{count} of {shape.model.name} ({shape.model.total:,} parameters)")
    series = plan.figures.figure(FIGURE).settings.series
    quantizers = ", ".join(dict.fromkeys(one.quantizer for one in series))
    about = f"{' and '.join(parts)}, each in {quantizers}"
    about += f", on {tokens:,} tokens of {text} in blocks of {shape.context:,}"
    if gone := [local.subfolder for run in runs.values() for local in run.deleted]:
        about += f". Measured before deletion: {', '.join(gone)}"
    return about


def _sampled(plan: Plan) -> object:
    """Return what is there to measure now, or None while a checkpoint is being saved."""
    with suppress(Problem):
        return [*map(sampled_checkpoints, plan.site.config.families.own.values())]
    return None


def _build(plan: Plan, profile: Path, at_once: int | None) -> None:
    """Measure the last checkpoint in each way that no checkpoint has been, print an estimate of the
    time, and build the rest. Without a given number, as many jobs run at once as memory allows."""
    kinds, first, late = dict[str, str](), dict[str, Job](), list[Job]()
    for job in plan.site.needed(plan.targets()):
        at = job.wildcards
        if job.rule in ("measure", "curvature"):
            kinds[job.manifest] = kind = at.get("quantizer") or at["probe"]
            if is_late := bool(stale(job.spec, job.paths)):
                late.append(job)
            if at["trajectory"] == RUN and not is_late:
                first[kind] = job
            elif (at["trajectory"], at["shard"]) == (RUN, [*plan.site.planned[RUN].shards][-1]):
                first.setdefault(kind, job)
    rest = [job for job in late if job not in first.values()]
    if late and profile.name == "default" and plan.site.config.scale.warm:
        warm.start()
    if rest:
        if len(rest) < len(late):
            _run([job.manifest for job in first.values()], profile, plan, at_once or 1)
        made = {kind: record.read(job.paths.record) for kind, job in first.items()}
        at_once = at_once or _fitting(made.values(), plan)
        seconds, memory = (sum(r.seconds for r in made.values()), _memory(made.values()))
        minutes = sum(made[kinds[job.manifest]].seconds for job in rest) / 60 / at_once
        took = f"the first checkpoint took {seconds:.0f} s and {memory / 1e9:.1f} GB"
        about = f"{len(rest)} more measurements take about {minutes:.1f} min, {at_once} at once"
        print(f"{took}; {about}", flush=True)
    _run(["figures"], profile, plan, at_once or 1)


def _run(targets: Iterable[str], profile: Path, plan: Plan, at_once: int) -> None:
    """Build targets, at most so many jobs at once on one machine; a cluster has its own limits."""
    cores = str(at_once * plan.site.config.scale.threads)
    chosen.build(Path(), targets, profile, ["--cores", cores] * (profile.name == "default"))


def _memory(records: Iterable[Record]) -> int:
    return max(r.peak_memory for r in records)


def _fitting(records: Collection[Record], plan: Plan) -> int:
    """Return how many jobs at once fit into the free memory, and let them share GPUs alike."""
    cores = len(os.sched_getaffinity(0)) // plan.site.config.scale.threads
    fitting = min(cores, psutil.virtual_memory().available // _memory(records))
    peak = max(r.device.peak_memory or 0 for r in records)
    if peak and (devices := visible()):
        query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        totals = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
        shared = max(1, min(map(int, totals)) * 2**20 * SHARE // peak)
        file = Path(f"config/scales/{SCALE}.yaml")
        chosen.write(file, {**read_yaml(file), "jobs_per_device": int(shared)})
        fitting = min(fitting, int(shared) * len(devices))
    return max(1, int(fitting))


def _report(plan: Plan, text: str, left: list[str]) -> str:
    """Write a page with picture, finding, settings and numbers; return finding and settings."""
    site, figure = plan.site, plan.figures.figure(FIGURE)
    words = str(manifest.read(figure.paths.manifest).facts[FINDING])
    table = measurements.read_table(Path(site.results) / MEASUREMENTS)
    labels = {members[0]: name for name, members in site.config.figures[FIGURE].curves.items()}
    order = {trajectory: place for place, trajectory in enumerate(labels)}
    table = table.sort_values("trajectory", key=lambda names: names.map(order), kind="stable")
    is_full = table.quantizer == FULL_PRECISION
    metric = is_full.map({True: "loss", False: "quantization_error"})
    shown = table[table.metric == metric].assign(what=table.quantizer.where(~is_full, "loss"))
    key = ["trajectory", "checkpoint_id"]
    values = shown.pivot_table(index=key, columns="what", values="value", sort=False)
    places = shown.drop_duplicates(key).set_index(key)[["step", "tokens", "lr", "phase"]]
    errors = 100 * values.drop(columns="loss").add_suffix(" (%)")
    runs = [*site.config.families.own]
    numbers, own = places.join([values.loss, errors]), places.loc[runs].dropna(subset="step")
    options = {"learning rate": ("lr", "--lr"), "number of tokens": ("tokens", "--tokens-per-step")}
    own = own.assign(tokens=own.tokens.where(own.step > 0, 0))  # none at step 0
    for what, (column, option) in options.items():
        if unknown := int(own[column].isna().sum()):
            count = f"{unknown} of {len(own)} checkpoints"
            words += f" The {what} of {count} is not known; give {option}."
    for run in runs:
        model = site.planned[run].shape.model
        assert isinstance(model, Given)
        words += of_guesses(labels[run], values.loss.loc[run], model.vocabulary)
    corpora = [manifest.read(plan.trajectories.corpus(run).paths.manifest) for run in runs]
    if len({corpus.files[VALIDATION]["sha256"] for corpus in corpora}) > 1:
        words += " Tokenizers of the runs split the text differently: compare no losses per token."
    labels = {run: name.replace("\\$", "$") for run, name in labels.items()}  # no Markdown
    numbers = numbers.reset_index(0).replace({"trajectory": labels})
    printed = numbers.to_string(index=False, na_rep="", float_format="{:.4g}".format)
    of = site.config.figures[FIGURE]
    picture = f"![{of.title}]({site.pictures}/{FIGURE}.{PICTURES[-1]})"
    begins = "Blocks begin without BOS."
    facts = manifest.read(plan.trajectories.corpus(RUN).paths.manifest).facts
    if tokens := facts.get(BEGIN):
        begins = f"Each block begins with BOS (token {', '.join(map(str, tokens))})."
    elif BEGIN in facts:
        begins = "Blocks begin without BOS, because the tokenizer adds none."
    settings = [*_settings(plan, table[~is_full]), "Bits are those of a code, without scales."]
    # While the plan was built, more checkpoints may have come.
    about = _about(plan, {run: len(places.loc[[run]]) for run in runs}, text)
    words += "\n\n" + " ".join([f"{about}.", begins, *settings])
    parts = [f"# {of.title}", picture, of.caption, words, f"```\n{printed}\n```"]
    parts += ["\n".join(f"- {line}" for line in left)] * bool(left)
    for beside, (what, index, factor, form) in BESIDE.items():
        rows = table[table.metric == beside]
        if not len(rows):
            continue
        pairs = zip(factor * rows.value, factor * rows.stderr, strict=True)
        cells = [f"{mean:{form}} ± {error:{form}}" for mean, error in pairs]
        rows = rows.assign(cell=cells, trajectory=rows.trajectory.map(labels))
        wide = rows.pivot(index=[*key, *index], columns="quantizer", values="cell")
        wide = wide.loc[rows.set_index([*key, *index]).index.unique(), [*rows.quantizer.unique()]]
        parts += [f"{what}, ± one standard error:", f"```\n{wide.to_string()}\n```"]
    write_atomically(REPORT, "\n\n".join(parts) + "\n")
    return words


def of_guesses(run: str, losses: Collection[float], vocabulary: int) -> str:
    """Return a sentence on checkpoints that predict worse than if all tokens were as probable."""
    above = sum(loss > (1 + ROUNDED) * log(vocabulary) for loss in losses)
    of = f"{above} of {len(losses)} checkpoints of {run} is above {log(vocabulary):.4g} nats/token"
    return f" The loss of {of}, that of a uniform guess; their errors tell little." * bool(above)


def _settings(plan: Plan, table: DataFrame) -> Iterator[str]:
    """Yield a sentence on each quantizer, and on the matrices that it left in full precision."""
    *_, last = plan.site.planned[RUN].shards
    kinds = plan.site.config.quantizers
    for one in table.drop_duplicates("quantizer").to_dict("records"):
        job = plan.measurements.measure(RUN, one["quantizer"], last, plan.measurements.seed(RUN))
        named = {"recipe": "a recipe of llm-compressor", **METHODS}
        method = named.get(one["method"], one["method"].upper())
        words = f"{one['quantizer']} is {method} with {one['bits']} bits"
        if isinstance(size := one["group_size"], int):
            words += f" and groups of {size} weights"
        if getattr(kinds[one["quantizer"]], "draw", 1) > 1:
            words += ", with another calibration set"
        for left in list(manifest.read(job.paths.manifest).facts.get("left_out", {}).values())[:1]:
            kind = "routers" if all(map(ROUTER.search, left)) else "matrices"
            words += f"; {len(left)} {kind} stay in full precision, such as {left[0]}"
        yield f"{words}."
