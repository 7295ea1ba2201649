"""Claims and tables through the real Snakemake: what they say, and what an edit of one renews."""

import json
import os
import random
import shutil
import sys
from contextlib import chdir
from dataclasses import replace
from itertools import islice
from pathlib import Path

import edits
import numpy as np
import pytest
from project import SEED, SHOWN, Project
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.audit import audit
from ptq_dynamics.provenance.remaking import remade
from safetensors.numpy import load_file
from support import edit_yaml, plan
from tracer import Traces

TARGETS = ("claims", "tables")
CLAIMS = "results/smoke/claims.json"
TABLES = "results/smoke/tables"


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return Traces(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def project(built, tmp_path_factory, traces):
    """A copy of the built project, with its claims judged and its tables written; traced."""
    copied = Project.copy(tmp_path_factory.mktemp("claims") / "project", figures=built.figures)
    for place in ("results", "figures"):
        shutil.copytree(built.folder / place, copied.folder / place, symlinks=True)
    tracing = replace(copied, environment=traces.environment(copied.folder / "workflow"))
    done = tracing.snakemake(targets=TARGETS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    traces.collect()
    return copied


def test_one_target_has_everything_that_is_made(project):
    """With figures there, the others are all that is left; another claim runs nothing else."""
    made = {"judge", "tabulate", "typeset", "report"}
    again = project.snakemake("-n", "--forceall", targets=("everything",))
    counted = {line.split()[0] for line in again.stdout.splitlines() if len(line.split()) == 2}
    assert made | {"figure", "train", "everything"} <= counted, again.stdout[-3000:]
    assert "claims" not in counted
    with project.edited("config/claims.yaml") as (path,):
        edit_yaml(path, lambda found: found["rise-in-decay"].update(says="Other words"))
        done = project.snakemake("-n", targets=("everything",))
    counted = {line.split()[0] for line in done.stdout.splitlines() if len(line.split()) == 2}
    assert made <= counted and not counted & {"train", "quantize", "evaluate", "figure"}


def test_every_function_that_they_enter_is_in_their_fingerprints(project, traces):
    assert {stage for stage, _ in traces.entered} == {"claims.judge", "claims.tables"}
    missed, _ = traces.missed(project.folder / "workflow")
    assert not missed


def test_exactly_what_depends_on_an_edit_is_stale(project, traces):
    """Another value of keys of both files, a few here and 100 by `make staleness`; EDITS_SEED=N
    tries those of a failed test again."""
    seed = int(os.environ.get("EDITS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"EDITS_SEED={seed}")

    def targets(plan: Plan) -> list[Job]:
        return [plan.claims.judge(), plan.tables.write()]

    chosen = plan("smoke", project.folder / "config", SEED, project.figures.split())
    known = edits.Known(project.folder, chosen, traces, targets)
    every = edits.of_keys(known, random.Random(seed), edits.FILES_OF_CLAIMS)
    tried = []
    for edit in islice(every, 100 if os.environ.get("EDITS") == "all" else 4):
        with project.edited(*edit.files) as paths:
            for path, content in zip(paths, edit.files.values(), strict=True):
                path.write_bytes(content)
            states = {each["manifest"]: each["state"] for each in project.status("", "--paper")}
        stale = {path for path in known.jobs if states[path] != "fresh"}
        tried.append((edit, edit.expected - stale, stale - edit.expected))
        print(f"{edit.name}: {len(stale)} stale", flush=True)
    print("", *(SHOWN + line for line in edits.tabulate(tried).splitlines()), sep="\n")
    wrong = [(e.name, sorted(missed), sorted(more)) for e, missed, more in tried if missed or more]
    assert tried and not wrong, wrong


def test_what_is_lost_of_the_table_of_code_is_written_again(project):
    """Also of claims and tables, of which `make figures` makes none."""
    table = project.folder / "results/smoke/code"
    before = {path.name: path.read_bytes() for path in table.iterdir()}
    shutil.rmtree(table)
    choice = ["--captions", "--scale", "smoke", "--figures", project.figures]
    done = project.process([sys.executable, "-m", "ptq_dynamics.cli", "status", *choice])
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in table.iterdir()} == before


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


def test_every_table_has_every_format(project):
    files = {path.name for path in (project.folder / TABLES).iterdir()}
    for name in ("headline", "peak-rate", "averaging", "families", "tasks", "claims"):
        assert {f"{name}.csv", f"{name}.md", f"{name}.tex"} <= files


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


def test_the_cost_is_that_of_the_records(project):
    command = [sys.executable, "-m", "ptq_dynamics.cli", "cost", "--scale", "smoke"]
    done = project.process(command)
    assert done.returncode == 0, done.stderr
    records = [
        json.loads(path.read_text())
        for place in ("results", "figures")
        for path in (project.folder / place / "smoke").rglob("*record.json")
    ]
    last = (project.folder / "results/smoke/cost.csv").read_text().splitlines()[-1].split(",")
    assert last[0] == "all" and int(last[1]) == len(records)
    assert int(last[2]) == sum(each["tokens"] or 0 for each in records)
    hours = sum(each["cpu_seconds"] for each in records) / 3600
    assert float(last[4]) == pytest.approx(hours, abs=1e-4)


def test_claims_and_tables_come_out_again_as_they_are(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", project.variables()["PYTHONPATH"])
    with chdir(project.folder):
        archive = Archive.of_scale("smoke")
        found = [r for r in archive.results.values() if r.record.job["stage"].startswith("claims.")]
        assert len(found) == 2
        assert list(remade(found, at_once=1)) == []
        beside = [*costs.files(Path("results/smoke"))]
        beside[0].touch()
        assert [line for line in audit(archive, {}, beside).wrong if "README" not in line] == []
