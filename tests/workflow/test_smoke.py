"""The whole graph at scale smoke through the real Snakemake."""

import json
import re
from itertools import chain

import numpy as np
import pytest
from project import SNAKEMAKE, TABLE, Project
from ptq_dynamics.engine import record
from ptq_dynamics.measure import measurements
from ptq_dynamics.plan import RULES
from safetensors.numpy import load_file
from support import ROOT


def test_the_rule_graph_of_the_readme_is_snakemakes(tmp_path):
    targets = ("figures", "claims", "tables", "paper", "report")
    project = Project.copy(tmp_path / "project", figures="all")
    said = project.snakemake("--rulegraph", "mermaid-js", targets=targets).stdout
    names = dict(re.findall(r"(id\d+)\[(\w+)\]", said))
    arrows = {(names[a], names[b]) for a, b in re.findall(r"(id\d+) --> (id\d+)", said)}
    page = (ROOT / "README.md").read_text()
    drawn = re.findall(r"^    ([\w &]+) --> (\w+)$", page, re.M)
    found = {(each, rule) for group, rule in drawn for each in group.split(" & ")}
    assert found == {(one, other) for one, other in arrows if other not in targets}


def test_progress_and_one_line_a_job_are_printed(first):
    _, said = first
    assert re.search(r"train constant-3e-3 seed 201: done in [\d.]+ s", said)
    assert "Traceback" not in said
    assert "error:" not in said
    assert not [line for line in said.splitlines() if "warning" in line.lower()]


def test_the_table_has_its_schema_and_every_trajectory(built):
    table = measurements.read_table(built.folder / TABLE)
    assert tuple(table.columns) == measurements.COLUMNS
    curves = [built.plan.site.config.figures[name].curves.values() for name in built.chosen]
    assert set(table.trajectory) == {*chain.from_iterable(chain.from_iterable(curves))}
    assert not table.duplicated(measurements.KEY).any()
    known = {"lr", "bits", "group_size", "task", "stderr"}  # not of every row
    assert not table.drop(columns=[*known]).isna().any().any()
    lr = table.set_index("trajectory").lr
    assert (lr["wsd-3e-3"] <= 3e-3).all() and lr["wsd-3e-3"].min() == 0
    assert (table.tokens % table.step == 0).all()


def test_the_table_holds_what_every_evaluation_measured(built):
    """Mean losses of the blocks and their paired differences, with their errors, in float64."""
    table = measurements.read_table(built.folder / TABLE)
    made = record.read(built.folder / "results/smoke/measurements.record.json")
    paths = [path for path in made.inputs if path.startswith("results/smoke/measure/")]
    losses = {
        tuple(path.split("/")[3:6:2]): load_file(
            (built.folder / path).parent / "losses.safetensors"
        )
        for path in paths
    }
    wanted = {}
    for (trajectory, quantizer), found in losses.items():
        for checkpoint, blocks in found.items():
            place, after = (trajectory, quantizer, checkpoint), blocks.astype(np.float64)
            wanted[*place, "loss"] = (after.mean(), after.std(ddof=1))
            if quantizer != "fp":
                before = losses[trajectory, "fp"][checkpoint].astype(np.float64)
                increase = after - before
                wanted[*place, "loss_increase"] = (increase.mean(), increase.std(ddof=1))
                wanted[*place, "quantization_error"] = (after.mean() / before.mean() - 1, np.nan)
    keys = ["trajectory", "quantizer", "checkpoint_id", "metric"]
    rows = table[table.metric.isin([key[-1] for key in wanted])].set_index(keys)
    assert rows.index.is_unique and set(rows.index) == set(wanted)
    rows, (values, spreads) = rows.loc[list(wanted)], np.transpose([*wanted.values()])
    assert rows.value.to_numpy() == pytest.approx(values, rel=1e-6, abs=1e-9)
    known = np.isfinite(spreads)
    errors = spreads[known] / len(blocks) ** 0.5
    assert rows.stderr.to_numpy()[known] == pytest.approx(errors, rel=1e-6)


def test_every_rule_is_written_out_and_every_figure_is_a_target(built):
    listed = built.process([SNAKEMAKE, "--list", "--config", "scale=smoke"]).stdout.split()
    files = [built.folder / "Snakefile", *(built.folder / "workflow/rules").glob("*.smk")]
    written = re.findall(r"^rule (\w+):", "".join(path.read_text() for path in files), re.M)
    assert sorted(written) == sorted(listed) and {*RULES} <= {*listed}
    assert "good condition" in built.process([SNAKEMAKE, "--lint"]).stderr
    known = built.ptq("status", "--scale", "paper")
    assert "is built at scale paper yet; run make figures " in known.stdout, known.stderr
    one = built.snakemake("-n", targets=("figures/smoke/fig07.manifest.json",))
    assert one.returncode == 0 and "Nothing to be done" in one.stdout + one.stderr


# Claims: their numbers, and those of figures that were not chosen


def losses(project, name, quantizer):
    place = project.folder / f"results/smoke/measure/{name}/seed-201/{quantizer}/all"
    found = load_file(place / "losses.safetensors")
    return {key: each.astype(np.float64) for key, each in found.items()}


def test_numbers_are_those_of_the_raw_losses(built):
    """The last cooldown ends where its trunk does. What no figure measures is not measured."""
    content = json.loads((built.folder / "results/smoke/claims.json").read_text())
    judged = {each["name"]: each for each in content["claims"]}
    found = next(row for row in judged["rise-in-decay"]["rows"] if "from 172k" in row["says"])
    errors = []
    for name in ("rainbow-172", "constant-3e-3"):
        full, quantized = (losses(built, name, each) for each in ("fp", "gptq-4bit"))
        last = max(full)
        errors.append(quantized[last].mean() / full[last].mean() - 1)
    assert found["value"] == pytest.approx(errors[0] / errors[1], rel=1e-9)
    others = [each for each in judged.values() if {*each["figures"]} - {*built.chosen}]
    assert others and {each["outcome"] for each in others} == {"not measured"}
    assert all(each["rows"] == [] and "was not chosen" in each["why"] for each in others)
