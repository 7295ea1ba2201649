"""Scales promise no text that nobody counted; builds are of the jobs that were planned."""

import shutil

import counts as counting
import pytest
from ptq_dynamics.config import counts, load, scales
from ptq_dynamics.plan import handlers
from support import ROOT, edit_yaml, one_line, plan

CONFIG = ROOT / "config"
SCALES = scales(CONFIG)
LOCKED = counts.read_counts(CONFIG / counts.FILE)


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


def test_a_build_tells_if_its_jobs_were_planned_otherwise_meanwhile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, other = (plan("smoke", CONFIG, seed, ["fig04"]) for seed in (1, 2))
    for chosen in (first, other):
        for job in chosen.targets():
            chosen.site.settle_all(job)
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
