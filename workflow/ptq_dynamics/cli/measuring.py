"""`ptq-dynamics measure`: write a project for own checkpoints, and build it."""

import os
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants
from pydantic import ValidationError

from ptq_dynamics import config
from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.config import families
from ptq_dynamics.config.errors import problem
from ptq_dynamics.corpus.sources.own import Texts
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.figures.labels import FINDING, METHODS, PICTURES
from ptq_dynamics.hub import folders
from ptq_dynamics.hub import lock as hub
from ptq_dynamics.measure.names import ACCURACY, FULL_PRECISION, MEASUREMENTS
from ptq_dynamics.plan import Plan, own_checkpoints
from ptq_dynamics.provenance.state import find
from ptq_dynamics.train.architectures.given import Given

if TYPE_CHECKING:
    from pandas import DataFrame

SCALE, FIGURE, RUN = "own", "quantization", "run"
LOCK = Path("families.lock.json")
# Files that `datasets` reads; other files are text.
TABLES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")
DATA_SET = r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})"
REPORT = Path("README.md")
FEWEST, LEAST = 4, 256  # blocks, and tokens, of validation text
# Parts of held-out text by the settings that read them.
SPLITS = {"evaluation": "validation", "calibration": "calibration", "curvature": "probe"}


def measure(arguments: Namespace) -> bool:
    """Measure missing or outdated checkpoints, and print the finding."""
    profile = chosen.profile(arguments.profile)
    out = arguments.out or Path("own", Path(arguments.place).resolve().name)
    _write(arguments, out / "config")
    with chdir(out):
        plan = chosen.plan(Namespace())
        figure = plan.figures.figure(FIGURE)
        quantizers = [*dict.fromkeys(each.quantizer for each in figure.settings.series)]
        points, shape = plan.site.planned[RUN].measured, plan.site.planned[RUN].shape
        assert isinstance(shape.model, Given)
        about = f"{shape.model.name} ({shape.model.total:,} parameters)"
        tokens = shape.context * plan.site.config.scale.evaluation.count(shape.context)
        text = arguments.text or (f"scale {arguments.scale}" if arguments.scale else "docstrings")
        each = f"each in {', '.join(quantizers)}, on {tokens:,} tokens of {text}"
        about = f"{len(points)} checkpoints of {about}, {each} in blocks of {shape.context:,}"
        print(about)
        if any(each.state != "up to date" for each in find(plan, plan.last())):
            _build(plan, quantizers, profile)
        print(f"\n{_report(plan, figure, f'{about}.')}\n")
    print(f"written: {out / REPORT}, {out / plan.site.results / MEASUREMENTS}")
    return True


def _write(arguments: Namespace, folder: Path) -> None:
    """Write the project's configuration."""
    default = config.read_yaml(ROOT / "config/own.yaml")
    folder.mkdir(parents=True, exist_ok=True)
    entry = _entry(arguments, folder)
    quantizers = _quantizers(arguments, default)
    average = default["average"] if arguments.average is None else arguments.average
    curves, averages = {RUN: [RUN]}, {}
    try:
        with chdir(folder.parent):
            own = families.Own(**entry)
            count = len(own_checkpoints.measured(own))
            print(
                *(f"{line}\n" for line in own_checkpoints.left_out(own)), sep="", end="", flush=True
            )
    except ValidationError as error:
        raise problem(error, entry, "measure") from None
    if arguments.average is not None and average not in (0, *range(2, count + 1)):
        raise Problem(f"--average is {average}: must be 0, or from 2 to {count} (all checkpoints)")
    if 1 < average <= count:
        mean = f"last-{average}"
        curves[f"average of the last {average}"] = [mean]
        averages[mean] = {"trajectory": RUN, "last": average}
    metrics = ["quantization_error", "loss"]
    metrics += ["sharpness", "hessian_trace"] if arguments.curvature else []
    metrics += ["accuracy"] if arguments.tasks else []
    figure = {**default["figure"], "curves": curves, "quantizers": [*quantizers]}
    contents = {
        "config": {"scale": SCALE, "seed": arguments.seed or 0, "figures": "all"},
        "runs": {**config.read_yaml(ROOT / "config/runs.yaml"), "runs": {}, "averages": {}},
        "families": {"families": {}, "runs": {}, "averages": averages, "own": {RUN: entry}},
        "quantizers": {**config.read_yaml(ROOT / "config/quantizers.yaml"), **quantizers},
        "figures": {FIGURE: {**figure, "metrics": metrics}},
        "tables": {},
        "tasks": config.read_yaml(ROOT / "config/tasks.yaml"),
        "backends": {"trajectory": RUN, "groups": []},
        f"scales/{SCALE}": _scale(arguments, default, folder.parent),
    }
    for name, content in contents.items():
        chosen.write(folder / f"{name}.yaml", content)


def _entry(arguments: Namespace, folder: Path) -> dict[str, Any]:
    """Return the entry of the checkpoints; revisions are locked to commits."""
    place, rate, entry = arguments.place, arguments.lr, dict[str, Any]()
    earlier = folder / "families.yaml"
    if Path(place).is_dir():
        entry["checkpoints"] = {"folder": _relative(place, folder.parent)}
    elif arguments.revisions is None:
        raise Problem(f"{place} is no folder; for a repository of the hub, add --revisions 'step*'")
    elif constants.HF_HUB_OFFLINE and earlier.is_file():
        known = config.read_yaml(earlier)["own"][RUN]
        entry |= {key: known[key] for key in ("checkpoints", "model")}
    else:
        found = hub.revisions(place, arguments.revisions)
        _, failed = hub.lock([hub.Wanted(place, each) for each in found], folder / LOCK)
        if failed:
            raise Problem(failed[0])
        commit = hub.read(folder / LOCK)[place][found[0]].commit
        entry["checkpoints"] = {"repository": place, "revisions": found}
        entry["model"] = hub.model(place, found[0], commit)
    if arguments.step:
        entry["checkpoints"]["step"] = arguments.step
    if rate not in (None, "trainer_state"):
        entry["rate"] = _relative(rate, folder.parent) if Path(rate).is_file() else rate
    keys = ("every", "last", "tokens_per_step", "skip")
    return entry | {key: value for key in keys if (value := getattr(arguments, key)) is not None}


def _relative(path: str | Path, root: Path) -> str:
    """Return a resolved path relative to the project."""
    return os.path.relpath(Path(path).resolve(), root.resolve())


def _quantizers(arguments: Namespace, default: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chosen quantizers by name."""
    every, found = config.read_yaml(ROOT / "config/quantizers.yaml"), dict[str, Any]()
    for method in arguments.methods or default["methods"]:
        methods = {each["method"] for each in every.values()} - {"recipe"}
        config.require("--methods", "method", [method], methods | every.keys())
        same = {name: each for name, each in every.items() if method in (name, each["method"])}
        if len(same) == 1:
            found |= same
        else:
            counts, first = arguments.bits or default["bits"], next(iter(same.values()))
            found |= {f"{method}-{bits}bit": {**first, "bits": bits} for bits in counts}
    if other := {*(arguments.bits or ())} - {each["bits"] for each in found.values()}:
        raise Problem(f"--bits {min(other)} fits no given method; leave --bits out")
    return found


def _scale(arguments: Namespace, default: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return a scale of this checkout, by default with the settings of config/own.yaml."""
    name = arguments.scale or default["scale"]
    config.require("--scale", "scale", [name], config.scales(ROOT / "config"))
    if arguments.tokens is not None and (arguments.scale or arguments.tokens < LEAST):
        raise Problem(f"--tokens must be {LEAST} or more, and --scale has its own; leave one out")
    scale = config.read_yaml(ROOT / f"config/scales/{name}.yaml")
    main, shape = scale["corpora"]["main"], scale["models"]["main"]
    text = _text(arguments.text, root) if arguments.text else {}
    sizes = {key: main[split] for key, split in SPLITS.items()}
    if arguments.scale is None:
        scale |= default["settings"]
        main |= default["text"]
        if not arguments.curvature:
            scale["curvature"]["tokens"] = default["context"]
        sizes = {key: scale[key]["tokens"] for key in SPLITS}
    if text and not arguments.curvature:
        sizes["curvature"] = 0
    if arguments.scale is None:
        with chdir(root):
            texts = Texts(**text) if "files" in text else None
            sizes = _fit(sizes, arguments.tokens, texts, default)
        for key in SPLITS:
            scale[key]["tokens"] = sizes[key] or scale[key]["tokens"]
        blocks = sizes["evaluation"] // FEWEST, *filter(None, sizes.values())
        shape["context"] = min(default["context"], *blocks)
    main |= {split: sizes[key] for key, split in SPLITS.items()}
    if text:
        main = {key: main[key] for key in ("vocabulary", *SPLITS.values())}
        main |= {"source": "own", "text": text}
    scale |= {"models": {"main": shape}, "corpora": {"main": main}}
    scale["regime"].pop("left_out", None)
    (scale.get("miniatures") or {}).pop("exponents", None)
    if arguments.tasks and not scale.get("tasks"):
        raise Problem(f"--tasks: scale {name} has no tasks; leave --scale out")
    names = {"names": arguments.tasks, "at_chance": [], "shots_of": {}}
    scale["tasks"] = {**scale["tasks"], **names} if arguments.tasks else None
    return scale


def _fit(
    sizes: Mapping[str, int], tokens: int | None, texts: Texts | None, default: Mapping[str, Any]
) -> dict[str, int]:
    """Return tokens of splits, fewer if texts are short. Raises `Problem` if they are too short."""
    usual, each = sizes["evaluation"], default["text"]["characters_per_token"]
    others = sum(sizes.values()) - usual
    count = most = each * ((tokens or usual) + others)
    if texts:
        count = 0
        for document in texts.documents():
            count += len(document)
            if count >= most:
                break
        least = default["shortest"]
        if tokens:
            least = max(least, each * (tokens + min(others, tokens * others // usual)))
        if count < least:
            mend = f"give {least:,} or more" + (", or lower --tokens" if tokens else "")
            raise Problem(f"--text has {count:,} characters without blank lines; {mend}")
    available = count // each
    evaluation = tokens or min(usual, usual * available // (usual + others))
    rest = min(others, available - evaluation)
    return {key: size * rest // others for key, size in sizes.items()} | {"evaluation": evaluation}


def _text(place: str, root: Path) -> dict[str, Any]:
    """Return the place of text: files, or a data set."""
    path = Path(place)
    if not path.exists():
        if (named := re.fullmatch(DATA_SET, place)) is None:
            raise Problem(f"--text is {place!r}: must be a file, a folder, or OWNER/NAME@COMMIT")
        return {"dataset": {"path": named[1], "revision": named[2]}}
    folder, name = (path, None) if path.is_dir() else (path.parent, path.name)
    files = folders.listed(folder, lambda each: each == name or (not name and each[0] != "."))
    tables = [each for each in files if each.name.lower().endswith(TABLES)]
    others = {*os.listdir(folder)} - {each.name for each in tables or files}
    if others and not name:
        print(f"--text: left out are {', '.join(sorted(others))}")
    top = _relative(folder, root)
    about = {"folder": top, "files": [asdict(each) for each in tables or files]}
    return about | ({"dataset": {"path": f"./{top}"}} if tables else {})


def _build(plan: Plan, quantizers: list[str], profile: Path) -> None:
    """Build the first checkpoint, print an estimate of the time, and build the rest."""
    first, seed = next(iter(plan.site.planned[RUN].shards)), plan.measuring.seed(RUN)
    jobs = [plan.measuring.measure(RUN, each, first, seed) for each in quantizers]
    curves = plan.site.config.figures[FIGURE].trajectories
    others = sum(len(plan.site.planned[each].measured) for each in curves) - 1
    if others and not all(job.paths.record.exists() for job in jobs):
        chosen.build(Path(), [job.manifest for job in jobs], profile)
        known = [record.read(job.paths.record) for job in jobs]
        seconds, memory = sum(r.seconds for r in known), max(r.peak_memory for r in known)
        took = f"the first checkpoint took {seconds:.0f} s and {memory / 1e9:.1f} GB"
        rest = f"take about {others * seconds / 60:.1f} min one after the other"
        print(f"{took}; {others} more, averages included, {rest}", flush=True)
    chosen.build(Path(), ["figures"], profile)


def _report(plan: Plan, figure: Job, about: str) -> str:
    """Write a page with picture, finding, settings and numbers; return finding and settings."""
    from ptq_dynamics.measure import measurements

    site, words = plan.site, str(manifest.read(figure.paths.manifest).facts[FINDING])
    table = measurements.read(Path(site.results) / MEASUREMENTS)
    is_full = table.quantizer == FULL_PRECISION
    metric = is_full.map({True: "loss", False: "quantization_error"})
    shown = table[table.metric == metric].assign(what=table.quantizer.where(~is_full, "loss"))
    shown = shown.sort_values("trajectory", key=lambda names: names != RUN, kind="stable")
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
    words += "\n\n" + " ".join([about, *_settings(plan, table[~is_full])])
    parts = [f"# {of.title}", picture, of.caption, words, f"```\n{text}\n```"]
    right = table[table.metric == ACCURACY]
    if len(right):
        percent = (100 * right[each] for each in ("value", "stderr"))
        cells = [f"{a:.1f} ± {b:.1f}" for a, b in zip(*percent, strict=True)]
        scores = right.assign(cell=cells).set_index([*key, "task", "quantizer"]).cell.unstack()
        parts += ["Accuracy in per cent, ± one standard error:", f"```\n{scores.to_string()}\n```"]
    write_atomically(REPORT, "\n\n".join(parts) + "\n")
    return words


def _settings(plan: Plan, table: "DataFrame") -> Iterator[str]:
    """Yield a sentence on each quantizer, and on the matrices that it left in full precision."""
    *_, last = plan.site.planned[RUN].shards
    for one in table.drop_duplicates("quantizer").to_dict("records"):
        job = plan.measuring.measure(RUN, one["quantizer"], last, plan.measuring.seed(RUN))
        method = METHODS.get(one["method"], one["method"].upper())
        said = f"{one['quantizer']} is {method} with {one['bits']} bits"
        if isinstance(size := one["group_size"], int):
            said += f" and groups of {size} weights"
        for left in list(manifest.read(job.paths.manifest).facts.get("left_out", {}).values())[:1]:
            said += f"; {len(left)} matrices stay in full precision, such as {left[0]}"
        yield f"{said}."
