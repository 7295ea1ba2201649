"""Kinds of optimizer, architecture, objective and average: found by standing in their folders, and
equal on both sides of the job border."""

import pytest
from ptq_dynamics.base.components import found
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.train.averages import Average
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from support import plan


@pytest.fixture(scope="module")
def made():
    return plan("laptop")


def test_every_kind_is_used_and_settings_cross_the_job_border_unchanged(made):
    runs, every = made.site.config.runs, made.trajectories.makers
    settings = [job.settings for name in [*runs.runs, *runs.averages] for job in every(name)]
    used = [*runs.averages.values(), *made.site.config.scale.models.values()]
    for each in settings:
        assert type(each).model_validate_json(each.model_dump_json()) == each
        used += [part for part in vars(each).values() if isinstance(part, Optimizer | Objective)]
    bases = (Optimizer, Architecture, Objective, Average)
    kinds = {kind for base in bases for kind in found(base.__module__, base)}
    # Nothing here is trained from what others made.
    assert kinds - {Given} == {*map(type, used)}
