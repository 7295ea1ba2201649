"""Kinds of optimizer, architecture, objective and average: found by standing in their folders, and
equal on both sides of the job border; planning with them is light."""

import pytest
from ptq_dynamics.base.components import found
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.averages import Average
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.settings import AverageSettings, TrainSettings
from support import ROOT, plan, python

KINDS = [
    kind
    for base in (Optimizer, Architecture, Objective, Average)
    for kind in found(base.__module__, base)
]


@pytest.fixture(scope="module")
def made():
    return plan("laptop")


@pytest.fixture(scope="module")
def trained(made):
    """Settings of every run."""
    return [made.trajectories.train(name).settings for name in made.site.config.runs.runs]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_is_used_at_scale_laptop(kind, made, trained):
    averages = made.site.config.runs.averages.values()
    used = [*averages, *made.site.config.scale.models.values()]
    used += [part for each in trained for part in (each.optimizer, each.objective)]
    assert kind in map(type, used)


def test_settings_are_equal_on_both_sides_of_the_job_border(made, trained):
    for settings in trained:
        assert TrainSettings.model_validate_json(settings.model_dump_json()) == settings
    for name in made.site.config.runs.averages:
        for job in made.trajectories.makers(name):
            again = AverageSettings.model_validate_json(job.settings.model_dump_json())
            assert again == job.settings and again.means


def test_planning_imports_no_large_library():
    heavy = "{'torch', 'transformers', 'pandas', 'matplotlib'}"
    program = f"import sys, ptq_dynamics.graph; print({heavy} & {{*sys.modules}})"
    found = python(["-c", program], ROOT, {"PYTHONPATH": str(ROOT / "workflow")})
    assert found.stdout.strip() == "set()", found
