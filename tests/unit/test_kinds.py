"""Kinds of optimizer, architecture, objective and average: found by standing in their folders;
and values of a scale that jobs depend on."""

from functools import reduce
from itertools import combinations
from typing import Literal, get_args, get_origin

import pytest
from ptq_dynamics.base.components import kinds_in
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.train.architectures import Architecture
from ptq_dynamics.train.architectures.given import Given
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.trajectories.averages import Average
from support import figure, plan, tiny_config


@pytest.fixture(scope="module")
def made():
    return plan("laptop")


def test_every_kind_is_used(made):
    planned = made.site.planned
    settings = [job.settings for name in planned for job in made.trajectories.jobs(name)]
    used = [getattr(trajectory, "entry", None) for trajectory in planned.values()]
    used += made.site.config.scale.models.values()
    for each in settings:
        used += [part for part in vars(each).values() if isinstance(part, Optimizer | Objective)]
    bases = (Optimizer, Architecture, Objective, Average)
    kinds = {kind for base in bases for kind in kinds_in(base.__module__, base)}
    # Nothing here is trained from what others made.
    assert kinds - {Given} == kinds & {*map(type, used)}


# What a build does with it shows after the jobs: tests/workflow/test_keep.py.
AFTERWARDS = {"warm", "keep.train", "keep.fetch", "keep.average"}


def choices(kind, place=""):
    """The keys of a scale that accept a few values, with these."""
    for name, each in kind.model_fields.items():
        kind, values = each.annotation, get_args(each.annotation)
        if isinstance(kind, type) and issubclass(kind, Strict):
            yield from choices(kind, f"{place}{name}.")
        elif kind is bool or get_origin(kind) is Literal:
            yield f"{place}{name}", values or (False, True)


CHOICES = [each for each in choices(Scale) if each[0] not in AFTERWARDS]


@pytest.mark.parametrize(("key", "values"), CHOICES)
def test_each_value_that_a_scale_accepts_makes_other_jobs(tmp_path, key, values):
    plans, (*above, last) = [], key.split(".")
    shown = figure("over_tokens", {"A": ["trunk"]}, ["sharpness", "quantization_error"])
    for value in values:
        scale = reduce(lambda inner, name: {name: inner}, reversed(above), {last: value})
        figures = {"shown": {**shown, "quantizers": ["gptq4"]}}
        config = tiny_config(tmp_path / str(value), scale, figures=figures)
        made = plan("smoke", config, figures=["shown"])
        plans.append({job.manifest: job for job in made.site.needed(made.targets())})
    assert not [values for one, other in combinations(plans, 2) if one == other]
