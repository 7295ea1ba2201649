"""Claims and tables through the real Snakemake: what they say, and what an edit of one renews."""

import json
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import edit_yaml

TARGETS = ("claims", "tables")


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    """A copy of the built project."""
    return built.copied(tmp_path_factory.mktemp("claims") / "project")


@pytest.fixture
def judged(project):
    """The claims by their names."""
    content = json.loads((project.folder / "results/smoke/claims.json").read_text())
    return {each["name"]: each for each in content["claims"]}


def losses(project, name, quantizer):
    place = project.folder / f"results/smoke/measure/{name}/seed-101/{quantizer}/all"
    found = load_file(place / "losses.safetensors")
    return {key: each.astype(np.float64) for key, each in found.items()}


def test_numbers_are_those_of_the_raw_losses(project, judged):
    """The last cooldown ends where its trunk does."""
    found = next(
        each for each in judged["rise-in-decay"]["inequalities"] if "rainbow-172" in each["says"]
    )
    sides, blocks = [], []
    for name in ("rainbow-172", "constant-3e-3"):
        full, quantized = (losses(project, name, each) for each in ("fp", "gptq-4bit"))
        last = max(full)
        ratio = quantized[last].mean() / full[last].mean()
        sides.append(ratio - 1)
        blocks.append((quantized[last] - ratio * full[last]) / full[last].mean())
    times = found["times"] * (1 - found["tolerance"])
    rest = blocks[0] - times * blocks[1]
    assert [found[side]["value"] for side in ("left", "right")] == pytest.approx(sides, rel=1e-9)
    assert found["effect"] == pytest.approx(sides[0] - times * sides[1], rel=1e-9)
    # Beside that of the text, an error of interpolation and of the calibration set is none here.
    assert found["stderr"] == pytest.approx(rest.std(ddof=1) / len(rest) ** 0.5, rel=1e-9)
    assert found["not_in_the_error"] == ["other seeds", "other calibration sets"]


def test_what_no_figure_measures_is_not_measured(project, judged):
    every = [one for claim in judged.values() for one in claim["inequalities"]]
    others = [one for one in every if one["figure"] not in project.chosen]
    assert others and {one["verdict"] for one in others} == {"not measured"}
    assert all("effect" not in one and one["why"] for one in others)


def test_an_edit_of_a_claim_trains_and_draws_nothing(project):
    with project.edited("config/claims.yaml") as (claims,):
        edit_yaml(claims, lambda found: found["rise-in-decay"].update(says="Otherwise."))
        wanted = project.planned(targets=("figures", *TARGETS))
    assert wanted == {"claims", "tables"}


def test_verdicts_are_printed_a_line_each(project, judged):
    command = [sys.executable, "-m", "ptq_dynamics.cli", "dev", "claims", "--scale", "smoke"]
    lines = project.process(command).stdout.splitlines()
    for line, (name, claim) in zip(lines, judged.items(), strict=True):
        assert name in line and claim["verdict"] in line
