"""Claims and tables through the real Snakemake: what they say, and what an edit of one renews."""

import json
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file


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
    place = project.folder / f"results/smoke/measure/{name}/seed-201/{quantizer}/all"
    found = load_file(place / "losses.safetensors")
    return {key: each.astype(np.float64) for key, each in found.items()}


def test_numbers_are_those_of_the_raw_losses(project, judged):
    """The last cooldown ends where its trunk does."""
    found = next(row for row in judged["rise-in-decay"]["rows"] if "from 172k" in row["says"])
    errors = []
    for name in ("rainbow-172", "constant-3e-3"):
        full, quantized = (losses(project, name, each) for each in ("fp", "gptq-4bit"))
        last = max(full)
        errors.append(quantized[last].mean() / full[last].mean() - 1)
    assert found["value"] == pytest.approx(errors[0] / errors[1], rel=1e-9)


def test_what_no_figure_measures_is_not_measured(project, judged):
    others = [each for each in judged.values() if {*each["figures"]} - {*project.chosen}]
    assert others and {each["outcome"] for each in others} == {"not measured"}
    assert all(each["rows"] == [] and "was not chosen" in each["why"] for each in others)


def test_outcomes_are_printed_a_line_each(project, judged):
    command = [sys.executable, "-m", "ptq_dynamics.cli", "dev", "claims", "--scale", "smoke"]
    lines = project.process(command).stdout.splitlines()
    assert lines.pop(0) == "smoke scale: its numbers mean nothing"
    for line, (name, claim) in zip(lines, judged.items(), strict=True):
        assert name in line and claim["outcome"] in line
