"""Claims and tables through the real Snakemake: what they say, and what an edit of one renews."""

import json
import shutil
import sys

import numpy as np
import pytest
from project import Project
from safetensors.numpy import load_file
from support import edit_yaml

TARGETS = ("claims", "tables")
CLAIMS = "results/smoke/claims.json"


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    """A copy of the built project, with its claims judged and its tables written."""
    copied = Project.copy(tmp_path_factory.mktemp("claims") / "project", figures=built.figures)
    for place in ("results", "figures"):
        shutil.copytree(built.folder / place, copied.folder / place, symlinks=True)
    done = copied.snakemake(targets=TARGETS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return copied


@pytest.fixture
def judged(project):
    """The claims by their names."""
    content = json.loads((project.folder / CLAIMS).read_text())
    return {each["name"]: each for each in content["claims"]}


def losses(project, name, quantizer):
    place = project.folder / f"results/smoke/evaluate/{name}/seed-101/{quantizer}/all"
    found = load_file(place / "losses.safetensors")
    return {key: each.astype(np.float64) for key, each in found.items()}


def test_all_fifteen_claims_have_a_verdict(judged):
    assert {each["number"] for each in judged.values()} >= set(range(1, 16))
    for each in judged.values():
        assert each["verdict"] in ("reproduced", "not reproduced", "inconclusive", "not measured")


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
    assert found["left"]["value"] == pytest.approx(sides[0], rel=1e-9)
    assert found["right"]["value"] == pytest.approx(sides[1], rel=1e-9)
    assert found["effect"] == pytest.approx(sides[0] - times * sides[1], rel=1e-9)
    # Beside that of the text, an error of interpolation and of the calibration set is none here.
    assert found["stderr"] == pytest.approx(rest.std(ddof=1) / len(rest) ** 0.5, rel=1e-9)
    assert found["not_in_the_error"] == ["other seeds", "other calibration sets"]


def test_what_no_figure_measures_is_not_measured(project, judged):
    chosen = set(project.chosen)
    others = [
        one
        for claim in judged.values()
        for one in claim["inequalities"]
        if one["figure"] not in chosen
    ]
    assert others and {one["verdict"] for one in others} == {"not measured"}
    assert all("effect" not in one and one["why"] for one in others)
    for claim in judged.values():
        if any(one["verdict"] == "not measured" for one in claim["inequalities"]):
            assert claim["verdict"] != "reproduced"


def test_nothing_is_due_twice(project):
    assert project.planned(targets=TARGETS) <= {"claims", "tables"}


def test_an_edit_of_a_claim_trains_and_draws_nothing(project):
    with project.edited("config/claims.yaml") as (claims,):
        edit_yaml(claims, lambda found: found["rise-in-decay"].update(says="Otherwise."))
        wanted = project.planned(targets=("figures", *TARGETS))
    assert wanted - {"claims", "tables"} == {"judge", "tabulate"}


def test_an_edit_of_a_run_renews_what_cites_it(project):
    with project.edited("config/runs.yaml") as (runs,):
        edit_yaml(runs, lambda found: found["runs"]["rainbow-172"].update(cooldown="17/190"))
        wanted = project.planned(targets=TARGETS)
        assert {"train:rainbow-172,101", "judge", "tabulate"} <= wanted
        assert "train:constant-3e-3,101" not in wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"left": {"of": "rainbow-173"}}, ["left.of", "'rainbow-173'"]),
        ({"quantizers": ["gptq-5bit"]}, ["quantizers", "'gptq-5bit'"]),
        ({"metric": "error"}, ["metric", "'error'"]),
    ],
)
def test_what_is_unknown_is_refused_before_any_job(project, change, words):
    """In one line by the command that `make claims` begins with; figures do without claims."""
    command = [sys.executable, "-m", "ptq_dynamics.cli", "claims", "--scale", "smoke"]
    with project.edited("config/claims.yaml") as (claims,):
        edit_yaml(claims, lambda found: found["constant-rate"]["inequalities"][0].update(change))
        told = project.process([*command, "--figures", project.figures, "--check"])
        done = project.snakemake(targets=TARGETS)
    (line,) = told.stderr.splitlines()
    assert told.returncode == done.returncode == 1
    assert "config/claims.yaml: constant-rate.inequalities.0" in line
    assert [word for word in words if word not in line] == []
    assert line.removeprefix("error: ") in done.stdout + done.stderr


def test_verdicts_are_printed_a_line_each(project, judged):
    command = [sys.executable, "-m", "ptq_dynamics.cli", "claims", "--scale", "smoke"]
    lines = project.process(command).stdout.splitlines()
    assert len(lines) == len(judged)
    for line, (name, claim) in zip(lines, judged.items(), strict=True):
        assert name in line and claim["verdict"] in line
