"""Edits of every key of every configuration file, in memory: each changes the jobs that depend on
it, and no others.

What depends on a key is found here a second time, from the files as they stand and a table of what
the sections of a scale are for; not from specifications. CONFIGURATION_EDITS=all tries every key,
in half an hour; otherwise a sample of keys with different names, of which CONFIGURATION_SEED gives
the same again.
"""

import json
import os
import random
import re
import shutil
from collections import defaultdict
from fractions import Fraction

import pytest
import yaml
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import load, read_yaml
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.graph import Plan
from support import ROOT, leaves

pytestmark = pytest.mark.slow

SAMPLE = 20
FILES = ["runs.yaml", "families.yaml", "quantizers.yaml", "figures.yaml", "backends.yaml"]
FILES += ["tasks.yaml", "scales/smoke.yaml"]
ANYTHING = ""
# Stages that a section of a scale may change, by the beginnings of their names.
SECTIONS = {
    "description": ["figures"],
    "budget": [ANYTHING],
    "regime": ["train.train", "figures"],
    "models": ["train.train", "quantize", "measure", "geometry", "figures"],
    "precision": ["train.train"],
    "compile": ["train.train"],
    "corpora": [ANYTHING],
    "log_every": ["train.train"],
    "measure": [ANYTHING],
    "evaluation": ["measure.loss", "curvature.landscape"],
    "calibration": ["quantize"],
    "curvature": ["curvature.sharpness", "curvature.spectrum"],
    "landscape": ["curvature.landscape"],
    "tasks": ["measure.tasks", "measure.accuracy", "corpus.functions", "figures"],
    "miniatures": ["trajectories", "quantize", "measure", "geometry", "figures"],
    "quantizers": ["figures", "quantize", "measure", "geometry"],
    "keep": ["train.drop"],
    "shard": [ANYTHING],
    "threads": [],
    "jobs_per_device": [],
    "warm": [],
    "resources": [],
    "release_seeds": [],
}
# Keys that no result depends on; scale smoke takes one draw of a quantizer.
IDLE = {"title", "caption", "threads", "jobs_per_device", "warm", "draws", "resources"}
# What only a scale with the hub asks of a family.
OF_THE_HUB = {"repository", "step_in", "steps_each", "convert", "dtype", "vocabulary", "revisions"}
OF_THE_HUB |= {"restarts", "unreadable", "format", "code", "reads_as", "release_of"}
OF_THE_HUB |= {"device_map"}
# What no scale without the hub takes of tasks.
OF_THE_HARNESS = {"task", "repository", "files", "revision", "metric"}


def specs(folder, **choice):
    """Specification of every job of scale smoke, or of another choice, by its result, with its
    stage."""
    smoke = {"scale": "smoke", "seed": 100, "more_seeds": [7], "figures": "all"}
    plan = Plan(load({**smoke, **choice}, folder), ROOT)
    targets = [*plan.last(), *([] if choice else [plan.backends.comparison()])]
    return {job.manifest: (job.stage, job.spec()) for job in plan.site.needed(targets)}


def keys():
    """Every key that has a value, in every file."""
    return [
        (file, path)
        for file in FILES
        for path, _ in leaves(yaml.safe_load((ROOT / "config" / file).read_text()))
    ]


def sampled(found, moments):
    """Some of the keys, each of another file or with another name."""
    alike = defaultdict(list)
    for file, path in found:
        alike[file, name_of(path)].append((file, path))
    chosen = [moments.choice(each) for each in alike.values()]
    return moments.sample(chosen, min(SAMPLE, len(chosen)))


def name_of(path):
    if path[0] == "resources":
        return path[0]
    return next(key for key in reversed(path) if isinstance(key, str))


def words():
    """Texts that stand under each key somewhere, and all of them."""
    found = defaultdict(set)
    for file in FILES:
        for path, value in leaves(read_yaml(ROOT / "config" / file)):
            if isinstance(value, str):
                found[name_of(path)].add(value)
    return found


WORDS = words()


def others(path, value):
    """Other values for a key, the likelier ones first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value, value - 1, value // 2, 4 * value, value // 8, 64 * value]
    if isinstance(value, float):
        numbers = [value / 2, value * 2, value * 32, value + 0.1, 3.0, 0.5, 0.9]
        # Of that, nothing but whether it is there counts.
        return [*numbers, None] if path[-1] == "other_peak_lr" else numbers
    if value is None:
        return [1, 2]
    try:
        share = Fraction(value)
        return [f"{float(share * by * 190):g}/190" for by in (2, 1 / 2, 3)]
    except (ValueError, ZeroDivisionError):
        return [*sorted(WORDS[name_of(path)] - {value}), f"{value} and more", f"{value}-more"]


def put(content, path, value):
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


def mentions(name, content):
    """Whether a name stands in an entry, in a merge as the key of its weight; of names of grids
    also one of the grid."""
    return any(is_same(name, each) for path, value in leaves(content) for each in (value, *path))


def is_same(one, other):
    """Whether two names may be one, where grids have their variables."""
    both = [str(one), str(other)]
    patterns = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(each)) for each in both]
    return any(map(re.fullmatch, patterns, reversed(both)))


def unused_quantizers():
    """Names of those that no figure and no comparison takes at scale smoke."""
    named = set()
    for file in ("figures.yaml", "backends.yaml"):
        found = leaves(read_yaml(ROOT / "config" / file))
        named |= {value for path, value in found if "draws" not in path}
    return {*read_yaml(ROOT / "config/quantizers.yaml")} - named


def unused_runs():
    """Names of those of families that no figure has and nothing is made of at scale smoke."""
    found = load({"scale": "smoke", "seed": 100, "figures": "all"}, ROOT / "config")
    every = found.runs.trajectories.values()
    named = {name for figure in found.figures.values() for name in figure.trajectories}
    named |= {name for each in every for name in each.sources().values()}
    return {*read_yaml(ROOT / "config/families.yaml")["runs"]} & {*found.runs.trajectories} - named


def unused_corpora():
    """Names of those that no model and no run has at scale smoke."""
    scale = read_yaml(ROOT / "config/scales/smoke.yaml")
    runs = [read_yaml(ROOT / f"config/{file}.yaml") for file in ("runs", "families")]
    named = {value for path, value in leaves([scale["models"], runs]) if path[-1] == "corpus"}
    return {*scale["corpora"]} - named - {"main"}


def unused_tasks():
    """Names of those that scale smoke does not take."""
    named = read_yaml(ROOT / "config/scales/smoke.yaml")["tasks"]["names"]
    return {*read_yaml(ROOT / "config/tasks.yaml")} - {*named}


def is_of_the_hub(path):
    """Whether no miniature has what stands under a key of families.yaml."""
    entry = read_yaml(ROOT / "config/families.yaml")[path[0]].get(path[1], {})
    if path[:1] != ("families",):
        # By the tokens of a stage goes weight decay alone.
        decays = entry.get("optimizer", {"weight_decay": 1})["weight_decay"]
        by_tokens = path[2:] == ("tokens",) and "after" in entry and not decays
        return by_tokens or not OF_THE_HUB.isdisjoint(path)
    # Rates follow the ratio of the widths.
    changed = path[2] == "model" and path[3] in {*entry["miniature"]} - {"width"}
    other = path[2] == "optimizer" and "miniature_optimizer" in entry
    return changed or other or not OF_THE_HUB.isdisjoint(path)


def of_one_family(path, raw):
    """Runs and averages that a key of families.yaml may change: all of its family, of which the
    longest way has the scale's steps."""
    runs = raw["runs"]
    if path[0] == "averages":
        # Also what else is made of the checkpoints of a run that an average comes to need.
        named = [raw["averages"][path[1]].get("trajectory")] if path[2] == "trajectory" else []
        return set().union(*(behind(name, raw) for name in (path[1], *named)))
    own = path[1]
    if path[0] == "runs":
        while "after" in runs[own]:
            own = runs[own]["after"]
        stretch = runs[runs[own].get("trunk", own)]
        own = stretch.get("family") or stretch["release_of"]
    whole = [name for name, run in runs.items() if run.get("family") == own]
    return set().union(*(behind(name, raw) for name in whole))


def behind(name, raw):
    """Runs and averages that are made of one, itself included; grids by the beginning of names."""
    found, entries = {name}, {**raw["runs"], **raw["averages"]}
    while True:
        more = {
            other
            for other, entry in entries.items()
            if other not in found and any(mentions(each, entry) for each in found)
        }
        if not more:
            return found
        found |= more


def allowed(file, path, edited):
    """Whether the job of a stage, with a result's path, may depend on a key of a file, of which the
    edited content names others, too."""
    if file == "figures.yaml":
        # A figure may be the first to want something measured.
        return lambda stage, result, new: (
            new
            or stage == "measure.collect"
            or result
            in (
                f"figures/smoke/{path[0]}.manifest.json",
                f"results/smoke/components/{path[0]}/manifest.json",
            )
        )
    if file == "quantizers.yaml":
        return lambda stage, result, new: (
            f"/{path[0]}/" in result
            or stage.startswith(("figures", "measure.collect", "quantize.comparison"))
            or new
        )
    if file == "backends.yaml":
        return lambda stage, result, new: new or stage == "quantize.comparison"
    if file == "tasks.yaml":
        return lambda stage, result, new: (
            new or f"/{path[0]}/" in result or stage.startswith(("figures", "measure.collect"))
        )
    if file == "scales/smoke.yaml":
        stages = tuple(SECTIONS[path[0]])
        return lambda stage, result, new: new or (bool(stages) and stage.startswith(stages))
    if path[0] == "defaults":
        return lambda stage, result, new: True
    raw = yaml.safe_load((ROOT / "config" / file).read_text())
    if file == "families.yaml":
        found = of_one_family(path, raw) | of_one_family(path, edited)
    else:
        found = behind(path[1], raw) | behind(path[1], edited)
    names = {each.partition("{")[0] for each in found}
    return lambda stage, result, new: (
        new
        or any(f"/{name}" in result for name in names)
        or stage.startswith(("figures", "measure.collect", "curvature.components"))
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shutil.copytree(ROOT / "config", tmp_path_factory.mktemp("edits") / "config")


def test_every_section_of_a_scale_is_known():
    assert {*SECTIONS} == {*Scale.model_fields}


def test_an_edit_of_a_key_changes_what_depends_on_it_and_nothing_else(folder):
    seed = int(os.environ.get("CONFIGURATION_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CONFIGURATION_SEED={seed}")
    tried = keys()
    if os.environ.get("CONFIGURATION_EDITS") != "all":
        tried = sampled(tried, random.Random(seed))
    before = specs(folder)
    unused = {("quantizers.yaml", name) for name in unused_quantizers()}
    unused |= {("families.yaml", "runs", name) for name in unused_runs()}
    unused |= {("scales/smoke.yaml", "corpora", name) for name in unused_corpora()}
    unused |= {("tasks.yaml", name) for name in unused_tasks()}
    missed, needless, refused, edits = [], [], [], 0
    for file, path in tried:
        # Without aliases, of which an edit would change all.
        content = json.loads(json.dumps(yaml.safe_load((ROOT / "config" / file).read_text())))
        value = dict(leaves(content))[path]
        named = (file, *path)
        idle = not IDLE.isdisjoint(path) or not unused.isdisjoint({named[:2], named[:3]})
        idle = idle or (file == "families.yaml" and is_of_the_hub(path))
        after, new = None, value
        for other in others(path, value):
            found = edited(folder, file, content, path, other) if other != value else None
            if found is not None:
                after, new = found, other
            # Of what changes nothing, the first that fits says so.
            if found is not None and (idle or found != before):
                break
        shutil.copy2(ROOT / "config" / file, folder / file)
        if after is None:
            refused.append((file, path))
            continue
        edits += 1
        changed = {
            result: (before.get(result) or after[result])[0]
            for result in before.keys() | after.keys()
            if before.get(result) != after.get(result)
        }
        if not changed and not idle:
            missed.append((file, path, value))
        if changed and idle:
            needless.append((file, path, sorted(changed)[:3]))
        put(content, path, new)
        may = allowed(file, path, content)
        wrong = [
            result
            for result, stage in changed.items()
            if not may(stage, result, result not in before or result not in after)
        ]
        if wrong:
            needless.append((file, path, sorted(wrong)[:3]))
    print(f"{edits} edits, {len(refused)} keys whose other values do not fit the rest:")
    print(*(f"  {file}: {'.'.join(map(str, path))}" for file, path in refused), sep="\n")
    wrong = [f"missed {each}" for each in missed] + [f"needless {each}" for each in needless]
    assert not wrong, "\n".join(wrong)
    assert edits > len(tried) / 4, refused


def edited(folder, file, content, path, value):
    """Specifications with another value, or none when that does not fit the rest."""
    put(content, path, value)
    (folder / file).write_text(yaml.safe_dump(content, sort_keys=False))
    try:
        return specs(folder)
    except Problem:
        return None


# Keys of families that only a scale with the hub reads, another value of each, and the stages that
# it changes of that family; all others follow from these by their inputs.
FETCH, CORPUS = "train.fetch", "corpus.corpus"
AT_THE_HUB = [
    ("families.amber.repository", "people/amber", {FETCH, CORPUS}),
    ("families.amber.steps_each", 763, {FETCH}),
    # Which finds the same steps.
    ("families.amber.step_in", r"(\d+)", set()),
    ("families.amber.convert", False, {FETCH}),
    ("families.amber.vocabulary", 32064, {FETCH, CORPUS}),
    ("families.amber.code", "b" * 40, {FETCH}),
    ("families.amber.dtype", "bfloat16", set()),
    ("families.amber.unreadable", "for a reason", None),
    ("families.olmo1-1b.format", None, {FETCH}),
    ("families.olmo2-1b.reads_as", None, {CORPUS}),
    ("runs.amber.revisions.0", "ckpt_009", {FETCH}),
    ("runs.smollm3-decay.restarts", True, {FETCH}),
]
OF_FAMILIES = {"scale": "paper", "figures": ["fig01", "fig02", "fig12", "fig14"], "more_seeds": []}


@pytest.fixture(scope="module")
def at_the_hub(tmp_path_factory):
    """Configuration whose figures of families round, which takes any model; and its jobs."""
    folder = shutil.copytree(ROOT / "config", tmp_path_factory.mktemp("hub") / "config")
    figures = read_yaml(folder / "figures.yaml")
    for name in OF_FAMILIES["figures"]:
        figures[name]["quantizers"] = ["rtn-4bit"]
    (folder / "figures.yaml").write_text(yaml.safe_dump(figures))
    return folder, specs(folder, **OF_FAMILIES)


@pytest.mark.parametrize(
    ("key", "value", "stages"), AT_THE_HUB, ids=[key for key, *_ in AT_THE_HUB]
)
def test_a_key_of_the_hub_changes_its_family_and_no_other(at_the_hub, tmp_path, key, value, stages):
    folder, before = at_the_hub
    shutil.copytree(folder, tmp_path / "config")
    content = json.loads(json.dumps(read_yaml(folder / "families.yaml")))
    section, name, *rest = key.split(".")
    put(content, [section, name, *(int(part) if part.isdigit() else part for part in rest)], value)
    if key.endswith("unreadable"):
        content["families"][name]["code"] = None
    (tmp_path / "config/families.yaml").write_text(yaml.safe_dump(content))
    if stages is None:
        # A figure of nothing else.
        with pytest.raises(Problem, match="leaves nothing of figure fig12"):
            specs(tmp_path / "config", **OF_FAMILIES)
        return
    after = specs(tmp_path / "config", **OF_FAMILIES)
    changed = {
        result: (before.get(result) or after[result])[0]
        for result in before.keys() | after.keys()
        if before.get(result) != after.get(result)
    }
    made = {stage for stage in changed.values() if stage in (FETCH, CORPUS)}
    assert made == stages
    assert bool(changed) == bool(stages)
    of_others = [
        result
        for result, stage in changed.items()
        if name.partition("-decay")[0] not in result and not stage.startswith("figures")
    ]
    assert not of_others, of_others[:5]
