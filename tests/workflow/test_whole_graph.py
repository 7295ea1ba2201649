"""Every figure from nothing at scale smoke: the whole graph, and what it measured."""

import subprocess
import sys
from pathlib import Path

import pytest
from ptq_dynamics.config import load
from ptq_dynamics.measure import measurements
from ptq_dynamics.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
PLAN = Plan(load({"scale": "smoke", "seed": 100, "figures": "all"}, ROOT / "config"), ROOT)


def snakemake(folder: Path, *arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("snakemake")), "-s", str(ROOT / "Snakefile")]
    command += ["--directory", str(folder), "--config", "scale=smoke", "figures=all"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    snakemake(folder)
    return folder


def test_every_figure_is_drawn(built: Path):
    missing = [path for path in PLAN.targets() if not (built / path).stat().st_size]
    assert len(PLAN.site.config.figures) >= 16 and not missing, missing


def test_every_method_and_metric_is_measured(built: Path):
    table = measurements.read(built / "results/smoke/measurements.csv")
    methods = {"fp", "gptq", "awq", "int8"}
    assert methods <= set(table.method), sorted(set(table.method))
    metrics = {"loss", "quantization_error", "loss_increase", "weight_mse", "output_mse"}
    metrics |= {"sharpness", "hessian_trace", "eigenvalue_01"}
    assert metrics <= set(table.metric), sorted(set(table.metric))
    assert table.value.notna().all(), table[table.value.isna()].head()


def test_a_second_build_runs_no_job(built: Path):
    assert "Nothing to be done" in snakemake(built, "-n")
