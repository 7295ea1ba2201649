"""Claims through the real Snakemake: their numbers, and those of figures that were not chosen."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file


@pytest.fixture
def judged(built):
    """The claims by their names."""
    content = json.loads((built.folder / "results/smoke/claims.json").read_text())
    return {each["name"]: each for each in content["claims"]}


def losses(project, name, quantizer):
    place = project.folder / f"results/smoke/measure/{name}/seed-201/{quantizer}/all"
    found = load_file(place / "losses.safetensors")
    return {key: each.astype(np.float64) for key, each in found.items()}


def test_numbers_are_those_of_the_raw_losses(built, judged):
    """The last cooldown ends where its trunk does."""
    found = next(row for row in judged["rise-in-decay"]["rows"] if "from 172k" in row["says"])
    errors = []
    for name in ("rainbow-172", "constant-3e-3"):
        full, quantized = (losses(built, name, each) for each in ("fp", "gptq-4bit"))
        last = max(full)
        errors.append(quantized[last].mean() / full[last].mean() - 1)
    assert found["value"] == pytest.approx(errors[0] / errors[1], rel=1e-9)


def test_what_no_figure_measures_is_not_measured(built, judged):
    others = [each for each in judged.values() if {*each["figures"]} - {*built.chosen}]
    assert others and {each["outcome"] for each in others} == {"not measured"}
    assert all(each["rows"] == [] and "was not chosen" in each["why"] for each in others)
