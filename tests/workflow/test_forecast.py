"""What `plan` says of a build, and what Snakemake is told of its jobs."""

import json
import re
import shutil
import sys
import time
from statistics import median

import pytest
from project import SNAKEMAKE
from ptq_dynamics.graph.measured import measure
from ptq_dynamics.graph.resources import Resources
from support import edit_yaml

PLAN = [sys.executable, "-m", "ptq_dynamics.cli", "plan"]
# Seconds that the plan of scale paper may take on a machine with nothing else to do, and here.
BAR, SLACK = 15, 2


def planned(built, *arguments):
    done = built.process([*PLAN, *arguments, "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def smoke(built, *arguments):
    return planned(built, "--scale", "smoke", "--figures", built.figures, *arguments)


def test_what_is_built_is_fresh_and_takes_no_time(built):
    found = smoke(built)
    assert {kind["due"] for kind in found["jobs"].values()} == {0}
    assert sum(kind["fresh"] for kind in found["jobs"].values()) > 20
    assert found["seconds"] == found["core_seconds"] == 0
    disk = found["disk_bytes"]
    assert disk["before"] == disk["most"] == disk["after"]
    there = sum(path.stat().st_size for path in (built.folder / "results/smoke").rglob("*"))
    assert there / 2 < disk["after"] < 2 * there


def test_records_say_how_long_the_rest_takes(built):
    """Without the results of one kind, the build takes what records of others of it say."""
    plan = built.plan
    config = plan.site.config
    gone = built.folder / "results/smoke/evaluate/rainbow-002"
    aside = built.folder / "aside"
    shutil.move(gone, aside)
    try:
        found = smoke(built, "--cores", "1")
        measured = measure(config, built.folder)
    finally:
        shutil.move(aside, gone)
    assert found["jobs"]["evaluate"]["due"] > 0 == found["jobs"]["train"]["due"]
    assert found["jobs"]["evaluate"]["measured"] == found["jobs"]["evaluate"]["due"]
    assert found["seconds"] == pytest.approx(found["core_seconds"])
    known = found["measured"]["measure.loss"]
    assert known["records"] == measured["measure.loss"].records > 3
    # Found a second time, from jobs and records.
    assumed = Resources(config)
    took = []
    for job in plan.site.needed(plan.last()):
        record = built.folder / job.paths.record
        if job.stage == "measure.loss" and record.exists() and "rainbow-002" not in str(record):
            took.append(json.loads(record.read_text())["seconds"] / assumed.work(job).seconds)
    assert known["seconds"] == pytest.approx(median(took))


def test_assumptions_are_near_what_was_measured(built):
    measured = measure(built.plan.site.config, built.folder)
    # Of a machine that other tests use too.
    for stage in ("train.train", "measure.loss", "quantize.gptq"):
        assert 0.2 < measured[stage].seconds < 8, stage
        assert 0.3 < measured[stage].memory < 1.5, stage


def test_scale_paper_is_planned_in_seconds(built):
    start = time.monotonic()
    found = planned(built, "--scale", "paper", "--figures", "all", "--gpus", "16")
    assert time.monotonic() - start < SLACK * BAR
    due = sum(kind["due"] for kind in found["jobs"].values())
    assert due > 10_000 and not found["measured"]
    assert (found["gpus"], found["cores"]) == (16, None)
    kinds = ("train", "quantize", "evaluate", "accuracy", "curvature", "landscape")
    assert found["gpu_jobs"] == sum(found["jobs"][kind]["due"] for kind in kinds)
    least = max(found["longest_chain_seconds"], found["gpu_seconds"] / 16)
    # The bound of list scheduling, and what downloads one after the other add.
    assert least <= found["seconds"] < 2 * least
    assert found["downloads"]["bytes"] > 9e12
    # What is kept is a part of what was there.
    assert found["disk_bytes"]["after"] < found["disk_bytes"]["most"] / 2


def test_the_plan_is_told_in_words(built):
    done = built.process([*PLAN, "--scale", "paper", "--figures", "fig04 fig14", "--gpus", "4"])
    said = done.stdout
    for words in ("paper scale: ", "time on 4 GPUs: ", "disk: at most ", "downloads: ", "GPU-h"):
        assert words in said, said
    assert re.search(r"^GPU jobs: [\d,]{3,}$", said, flags=re.M), said
    assert re.search(r"^train +\d+ +0 +[\d.,]+ +[\d.,]+ +assumptions$", said, flags=re.M), said
    refused = built.process([*PLAN, "--scale", "smoke", "--gpus", "4"])
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: config/scales/smoke.yaml has no resources.device")
    assert built.process([*PLAN, "--gpus", "0"]).returncode == 2


def test_snakemake_is_told_what_jobs_ask_for_where_something_reads_it(built):
    def resources(*arguments, scale="smoke"):
        choice = ["--config", f"scale={scale}", "figures=fig04"]
        command = [SNAKEMAKE, "-n", "--quiet", "host", "--forceall", *choice, *arguments]
        done = built.process([*command, "--", "figures"])
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-3000:]
        found = re.findall(r"^rule (\w+):\n(?:    .*\n)*?    resources: (.*)$", said, flags=re.M)
        return [(rule, told) for rule, told in found if rule != "figures"]

    plain = resources()
    assert plain and all("mem_mb" not in told and "runtime" not in told for _, told in plain)
    for more in (["--jobs", "4"], ["--resources", "mem_mb=4000"]):
        asked = resources(*more)
        assert len(asked) == len(plain)
        for _, told in asked:
            assert re.search(r"mem_mb=\d{3,}", told) and re.search(r"runtime=\d+", told)
            assert "expected=" in told and "gpu" not in told
    with built.edited("config/scales/gpu.yaml") as (path,):
        edit_yaml(path, lambda found: found["resources"]["device"].update(model="h100"))
        asked = resources("--jobs", "4", scale="gpu")
    assert len(asked) > 20
    for rule, told in asked:
        on_gpu = rule in ("train", "quantize", "evaluate")
        assert ("gpu=1, gpu_model=h100" in told) == on_gpu, (rule, told)
        assert ("gpu" in told) == on_gpu, (rule, told)
