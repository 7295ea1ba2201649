"""Figures of every kind from nothing at scale smoke: all stages, layouts, architectures and
optimizers, what they measured, and what their jobs entered and read."""

import os
import random
import sys
from dataclasses import replace
from itertools import islice
from typing import Any

import edits
import pytest
from project import SHOWN, TABLE, Project
from ptq_dynamics.engine.fingerprint import sources
from ptq_dynamics.measure import measurements
from support import edit_yaml
from tracer import Traces

# With all others the same stages would run twice as many jobs.
FIGURES = [
    *(
        "fig01",
        "fig03",
        "fig05",
        "fig08",
        "fig09",
        "fig10",
        "fig11",
        "fig12",
        "fig13",
        "fig14",
        "fig19",
    ),
    *("fig20", "fig22", "fig24", "interpolation", "pca", "pythia", "windows", "flatness"),
    "averages",
]


def thin_out(figures: dict[str, Any]) -> None:
    """Leave those figures, and a few ends of figure 5, which alone has a fifth of all jobs."""
    for name in figures.keys() - {*FIGURES}:
        del figures[name]
    curves = figures["fig05"]["curves"]
    figures["fig05"]["curves"] = {name: ends[:2] for name, ends in [*curves.items()][:3]}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Traces]:
    """A build of these figures that is traced."""
    folder = tmp_path_factory.mktemp("graph")
    traces, project = Traces(folder / "traces"), Project.copy(folder / "project", figures="all")
    edit_yaml(project.folder / "config/figures.yaml", thin_out)
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


def test_a_clone_draws_every_figure_from_what_is_released(traced, tmp_path):
    project, _ = traced
    choice = ["--scale", "smoke", "--figures", "all"]
    verb = [sys.executable, "-m", "ptq_dynamics.cli"]
    released = project.process([*verb, "release", str(tmp_path / "release"), *choice])
    assert released.returncode == 0, released.stderr
    clone = Project.copy(tmp_path / "clone", figures="all")
    edit_yaml(clone.folder / "config/figures.yaml", thin_out)
    taken = clone.process([*verb, "adopt", str(tmp_path / "release"), *choice])
    due = {job.partition(":")[0] for job in clone.stale()}
    assert due == {"figure", "measurements"}, taken.stdout
    # One of each layout: each reads what it draws in its own way.
    figures = project.plan.site.config.figures
    drawn = sorted({figures[name].layout: name for name in project.chosen}.values())
    replace(clone, figures=" ".join(drawn)).build()
    paths = [f"figures/smoke/{name}.{kind}" for name in drawn for kind in ("pdf", "png", "csv")]
    for path in paths:
        assert (clone.folder / path).read_bytes() == (project.folder / path).read_bytes(), path
    print(SHOWN + released.stdout.rpartition("/")[2].strip())


def test_every_function_that_a_job_enters_is_in_its_fingerprint(traced):
    project, traces = traced
    missed, never = traces.missed(project.folder / "workflow")
    assert not missed
    stages = len({stage for stage, _ in traces.entered})
    print(
        f"{SHOWN}{stages} stages traced; of the functions and classes in their fingerprints "
        f"{never:.0%} were never entered"
    )


# Stages that no figure of scale smoke has, and where they are traced.
TRACED_ELSEWHERE = {
    *("claims.judge", "claims.tables"),  # test_claims.py
    "report.page",  # test_report.py
    "paper.typeset",  # test_paper.py
    # test_backends.py
    *("quantize.environment", "quantize.worker", "quantize.comparison", "quantize.rtn"),
    *("quantize.nf4", "train.drop"),  # tests/unit/test_traced.py
    "corpus.datasets",  # tests/unit/test_datasets.py
    "train.fetch",  # tests/unit/test_fetch.py
    "measure.tasks.fetch",  # from local files: tests/unit/test_tasks.py
    "train.ranks",  # what several processes run for train: tests/unit/test_distributed.py
}


def test_every_stage_is_traced(traced):
    project, traces = traced
    plan = project.plan
    jobs = plan.site.needed([*plan.last(), plan.figures.collect()])
    assert set(traces.entered) == {(job.stage, tuple(job.modules)) for job in jobs}
    texts = sources.on_disk(project.folder / "workflow")
    stages = {
        name.removeprefix("ptq_dynamics.")
        for name, text in texts.items()
        if "\ndef run(context: Context[" in text
    }
    assert stages - {stage for stage, _ in traces.entered} == TRACED_ELSEWHERE


# What tells types of settings apart; and what landscapes and components are told of runs whose
# results they read, which change with it.
READ_ELSEWHERE = {
    ("LastSettings", "kind"),
    ("LawaSettings", "kind"),
    ("LineSettings", "kind"),
    ("MergeSettings", "kind"),
    ("TailsSettings", "kind"),
    *(("ShownRun", name) for name in ("name", "trunk", "at")),
}


def test_a_job_reads_every_setting_that_it_is_given(traced):
    """So that no edit of configuration makes a job again that does not depend on it."""
    _, traces = traced
    assert len(traces.given) >= 10
    for stage, given in traces.given.items():
        assert not given - traces.read[stage] - READ_ELSEWHERE, stage


# How many edits of each kind are tried, here and by `make staleness`; None is all of them.
TRIED: dict[str, tuple[int, int | None]] = {
    "keys": (3, 150),
    "functions": (2, 150),
    "files": (2, 60),
    "libraries": (1, None),
    "figures": (1, None),
    "runs": (1, None),
}


def test_exactly_what_depends_on_an_edit_is_stale(traced, tmp_path):
    """EDITS_SEED=N tries those of a failed test again."""
    project, traces = traced
    seed = int(os.environ.get("EDITS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"EDITS_SEED={seed}")
    moments, known = random.Random(seed), edits.Known(project.folder, project.plan, traces)
    found = {
        "keys": edits.of_keys(known, moments),
        "functions": edits.of_functions(known, moments),
        "files": edits.of_files(known, moments),
        "libraries": edits.of_libraries(known, moments, tmp_path),
        "figures": edits.of_figures(known, moments),
        "runs": edits.of_runs(known, moments),
    }
    tried = []
    for kind, (few, many) in TRIED.items():
        for edit in islice(found[kind], many if os.environ.get("EDITS") == "all" else few):
            actual = after(project, edit)
            tried.append((edit, edit.expected - actual, actual - edit.expected))
            print(f"{edit.kind} {edit.name}: {len(actual)} stale", flush=True)
    assert after(project, edits.Edit("", "", {}, set())) == set()
    print("", *(SHOWN + line for line in edits.tabulate(tried).splitlines()), sep="\n")
    wrong = [(e.name, sorted(missed)[:3], sorted(more)[:3]) for e, missed, more in tried]
    assert not [each for each in wrong if each[1] or each[2]], wrong


def after(project: Project, edit: edits.Edit) -> set[str]:
    """The results that are not fresh while an edit stands."""
    whole = replace(project, environment=edit.environment)
    with project.edited(*edit.files) as paths:
        for path, content in zip(paths, edit.files.values(), strict=True):
            path.unlink() if content is None else path.write_bytes(content)
        return {each["manifest"] for each in whole.status() if each["state"] != "fresh"}
