"""Weights that a scale does not keep: dropped after a build, made again on demand."""

import pytest
from project import Project
from ptq_dynamics.engine import manifest
from support import copy_results, edit_yaml, visible

KEEP = {"train": "measured", "average": "none", "quantize": "none"}
RUN = "results/smoke/train/constant-3e-3/seed-201"


@pytest.fixture(scope="module")
def lean(built, tmp_path_factory):
    """A build of a figure of averages that keeps the measured checkpoints of runs alone. All but
    the averages and what is quantized comes from another build."""
    project = Project.copy(tmp_path_factory.mktemp("lean") / "project", figures="fig07")
    edit_yaml(project.folder / "config/scales/smoke.yaml", lambda found: found.update(keep=KEEP))
    runs = [path.name for path in (built.folder / "results/smoke/train").iterdir()]
    losses = [f"measure/{run}/seed-201/fp" for run in runs]
    names = (f"results/smoke/{part}" for part in ("corpus", "train", *losses))
    copy_results(built.folder, project.folder, [*names])
    project.build()
    return project


def dropped(project, kind):
    folder = project.folder / "results/smoke" / kind
    return [manifest.read(path).dropped() for path in folder.rglob("manifest.json")]


def weights(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*model*.safetensors")}


def test_what_is_measured_does_not_depend_on_what_is_kept(lean, built):
    name = "figures/smoke/fig07.csv"
    assert (lean.folder / name).read_bytes() == (built.folder / name).read_bytes()
    kept = visible(built.folder / "results/smoke/measure")
    for name, data in visible(lean.folder / "results/smoke/measure").items():
        assert name.endswith(("record.json", "spec.json")) or kept[name] == data, name


def test_weights_go_and_what_is_measured_and_what_is_small_stays(lean, built):
    assert all(dropped(lean, "average")) and dropped(lean, "average")
    assert not weights(lean.folder / "results/smoke/average")
    measured = {point.id for point in lean.plan.site.planned["constant-3e-3"].measured}
    left = weights(lean.folder / RUN)
    assert {name.partition("/")[0] for name in left} == measured
    assert left < weights(built.folder / RUN)
    small = f"{RUN}/curve.csv"
    assert (lean.folder / small).read_bytes() == (built.folder / small).read_bytes()
    assert lean.stale() == lean.planned() == set(), "something is left to do"


def test_a_new_figure_has_what_it_needs_made_again_and_no_other_result_changes(lean):
    folder = lean.folder / "results/smoke"
    before = visible(folder)
    lean.figures = "fig07 interpolation"
    ran = lean.planned()
    assert ran and not [job for job in ran if job.startswith("train/")], ran
    lean.build()
    after = visible(folder)
    collected = ("measurements.", "absent.json")
    changed = [n for n in before if n not in after or before[n] != after[n]]
    assert not [name for name in changed if not any(each in name for each in collected)]
    assert all(dropped(lean, "average")) and lean.stale() == set()
    lean.figures = "fig07"
