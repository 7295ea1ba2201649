"""Scales promise no text that nobody counted, and no build that nobody made; jobs depend on their
values."""

import re
import shutil
import subprocess
from functools import reduce
from itertools import combinations
from typing import Literal, get_args, get_origin

import counts as counting
import pytest
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.config import counts, load, scales
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.plan import handlers
from support import MAKE, ROOT, edit_yaml, figure, one_line, plan, tiny_config

CONFIG = ROOT / "config"
SCALES = scales(CONFIG)
LOCKED = counts.read_counts(CONFIG / counts.FILE)
# A release is of a build, and tests build scale smoke.
BUILT = {"smoke", *(path.parent.name for path in ROOT.glob("results/reference/*/claims.json"))}


def scale_of(name, folder=CONFIG):
    return load({"scale": name, "seed": 100, "figures": "all"}, folder).scale


# Text


@pytest.mark.parametrize("scale", SCALES)
def test_every_embedded_corpus_was_counted_since_its_text_or_lock_changed(scale):
    counted = {name: each.text for name, each in LOCKED.get(scale, {}).items()}
    assert counted == counts.texts(scale_of(scale)), "run make counts"


@pytest.mark.slow
def test_corpora_have_the_tokens_that_were_counted(tmp_path):
    """Those of the smallest scale; `make counts` counts all again (minutes)."""
    assert counting.count("smoke", tmp_path) == LOCKED["smoke"]


def test_a_scale_whose_text_is_too_short_plans_nothing(tmp_path):
    folder = shutil.copytree(CONFIG, tmp_path / "config")
    main = counts.texts(scale_of("gpu"))["main"]

    def text_with(**changes):
        edit_yaml(folder / "scales/gpu.yaml", lambda to: to["corpora"]["main"].update(changes))
        return counts.texts(plan("gpu", folder).site.config.scale)["main"]

    assert text_with(train=44_551_019) == main
    # A scale of one's own that has the same text.
    other = shutil.copy(folder / "scales/gpu.yaml", folder / "scales/mine.yaml")
    edit_yaml(other, lambda to: to["corpora"]["main"].update(train=44_551_020))
    with one_line("mine.yaml: corpora.main.train is 44,551,020, but its text has 44,551,019"):
        plan("mine", folder)
    with one_line("gpu.yaml: corpora.main.train is 44,800,000, but its text has 44,551,019 tokens"):
        text_with(train=44_800_000)
    # Of other text nothing is known before the job counts it.
    assert text_with(shortest_document=99) != main


# Builds


def test_a_scale_that_was_never_built_says_so_wherever_it_is_offered(capsys):
    listed = subprocess.run([*MAKE, "help"], cwd=ROOT, capture_output=True, text=True).stdout
    offered, _, others = re.search("SCALE=.*", listed)[0].partition("; never built: ")
    for scale in SCALES:
        never = scale not in BUILT
        handlers.begin(plan(scale), local=False)
        assert (f"{scale} scale: never built" in capsys.readouterr().err) == never
        row = re.search(rf"^\| {scale} \|.*", (ROOT / "README.md").read_text(), re.M)[0]
        assert ("not built yet" in row) == never
        assert scale in (others.split() if never else re.findall(r"\w+", offered))


def test_a_build_tells_if_its_jobs_were_planned_otherwise_meanwhile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, other = (plan("smoke", CONFIG, seed, ["fig04"]) for seed in (1, 2))
    for chosen in (first, other):
        for job in chosen.targets():
            chosen.settle(job)
        handlers.require_planned(chosen)
    with one_line("has planned figures/smoke/fig04.manifest.json otherwise meanwhile"):
        handlers.require_planned(first)


def test_no_result_depends_on_resources_or_the_note(tmp_path):
    folder = shutil.copytree(CONFIG, tmp_path / "config")
    change = {"note": "another", "resources": {"default": {"minutes": 1, "memory": 1}}}
    edit_yaml(folder / "scales/gpu.yaml", lambda to: to.update(change, threads=7))
    before, after = plan("gpu"), plan("gpu", folder)
    for made in (before, after):
        made.job("judge")
    one, two = before.site.made, after.site.made
    assert one.keys() == two.keys() and all(one[path] == two[path] for path in one)


# Values that jobs depend on

# What a build does with it shows after the jobs: tests/workflow/test_keep.py.
AFTERWARDS = {"warm", "keep.train", "keep.fetch", "keep.average"}


def choices(kind, place=""):
    """The keys of a scale that accept a few values, with these."""
    for name, each in kind.model_fields.items():
        kind, values = each.annotation, get_args(each.annotation)
        if isinstance(kind, type) and issubclass(kind, Strict):
            yield from choices(kind, f"{place}{name}.")
        elif kind is bool or get_origin(kind) is Literal:
            yield f"{place}{name}", values or (False, True)


CHOICES = [each for each in choices(Scale) if each[0] not in AFTERWARDS]


@pytest.mark.parametrize(("key", "values"), CHOICES)
def test_each_value_that_a_scale_accepts_makes_other_jobs(tmp_path, key, values):
    plans, (*above, last) = [], key.split(".")
    shown = figure("over_tokens", {"A": ["trunk"]}, ["sharpness", "quantization_error"])
    for value in values:
        scale = reduce(lambda inner, name: {name: inner}, reversed(above), {last: value})
        figures = {"shown": {**shown, "quantizers": ["gptq4"]}}
        config = tiny_config(tmp_path / str(value), scale, figures=figures)
        made = plan("smoke", config, figures=["shown"])
        plans.append({job.manifest: job for job in made.site.needed(made.targets())})
    assert not [values for one, other in combinations(plans, 2) if one == other]
