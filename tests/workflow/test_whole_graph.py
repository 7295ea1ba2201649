"""Every figure from nothing at scale smoke: the whole graph, what it measured, and what its jobs
entered and read."""

from dataclasses import replace

import pytest
from project import TABLE, Project
from ptq_dynamics.measure import measurements
from tracer import Traces


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Traces]:
    """A build of all figures that is traced."""
    folder = tmp_path_factory.mktemp("graph")
    traces, project = Traces(folder / "traces"), Project.copy(folder / "project", figures="all")
    replace(project, environment=traces.environment(project.folder / "workflow")).build()
    traces.collect()
    return project, traces


def test_every_figure_is_drawn(traced):
    project, _ = traced
    targets = project.plan.targets()
    missing = [path for path in targets if not (project.folder / path).stat().st_size]
    assert len(project.chosen) >= 16 and not missing, missing


def test_every_method_and_metric_is_measured(traced):
    table = measurements.read(traced[0].folder / TABLE)
    methods = {"fp", "gptq", "awq", "int8"}
    assert methods <= set(table.method), sorted(set(table.method))
    metrics = {"loss", "quantization_error", "loss_increase", "weight_mse", "output_mse"}
    metrics |= {"sharpness", "hessian_trace", "eigenvalue_01"}
    assert metrics <= set(table.metric), sorted(set(table.metric))
    assert table.value.notna().all(), table[table.value.isna()].head()


def test_a_second_build_runs_no_job(traced):
    project, _ = traced
    assert project.stale() == project.planned() == set()


def test_every_function_that_a_job_enters_is_in_its_fingerprint(traced):
    project, traces = traced
    missed, never = traces.missed(project.folder / "workflow")
    assert len(traces.entered) >= 10
    print(f"{len(traces.entered)} stages; {never:.0%} of functions and classes never entered")
    assert not missed


# What tells types of settings apart; and what landscapes and components are told of runs whose
# results they read, which change with it.
READ_ELSEWHERE = {
    ("LawaSettings", "kind"),
    ("LineSettings", "kind"),
    ("TailsSettings", "kind"),
    *(("ShownRun", name) for name in ("name", "trunk", "at")),
}


def test_a_job_reads_every_setting_that_it_is_given(traced):
    """So that no edit of configuration makes a job again that does not depend on it."""
    _, traces = traced
    assert len(traces.given) >= 10
    for stage, given in traces.given.items():
        assert not given - traces.read[stage] - READ_ELSEWHERE, stage
