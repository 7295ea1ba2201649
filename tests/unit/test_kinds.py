"""What a kind is set to is written in its class of the configuration and read by a dataclass of its
module, which no type checker sees together: here, every kind's are compared."""

from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from ptq_dynamics.config import load
from ptq_dynamics.config.models import AnyModel
from ptq_dynamics.config.quantizers import Quantizer
from ptq_dynamics.jobs.settings import decode, encode
from ptq_dynamics.plan import Plan
from ptq_dynamics.trajectories.objectives.kinds import Objective
from ptq_dynamics.trajectories.optimizers.kinds import Optimizer

PACKAGE = "ptq_dynamics"


def kinds(union):
    """The classes of a discriminated union."""
    return get_args(get_args(union)[0])


@pytest.fixture(scope="module")
def plan():
    return Plan(load({"scale": "laptop", "seed": 1, "figures": "all"}, Path("config")))


@pytest.mark.parametrize("kind", kinds(Quantizer), ids=lambda kind: kind.__name__)
def test_a_quantizer_is_told_just_what_its_stage_reads(kind, plan):
    found = [each for each in plan.site.config.quantizers.values() if type(each) is kind]
    assert found, f"config/quantizers.yaml has no {kind.__name__}"
    run = import_module(f"{PACKAGE}.{kind.stage}").run
    (context,) = get_args(get_type_hints(run)["context"])
    (read,) = get_args(context)
    for quantizer in found:
        job = plan.quantization.quantize("constant-3e-3", name_of(plan, quantizer))
        told = encode(job.settings)["quantizer"]
        fixed = {name for name in told if is_fixed(kind, name)}
        named = {field.name for field in fields(read)}
        assert named <= {*told} and {*told} - named <= fixed, (kind, told)
        again = encode(decode(run, encode(job.settings)))["quantizer"]
        assert again == {name: told[name] for name in again}


def is_fixed(kind, name):
    """Whether a kind has one value of a key, which tells its stage nothing."""
    annotation = kind.model_fields[name].annotation
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def name_of(plan, quantizer):
    return next(name for name, each in plan.site.config.quantizers.items() if each is quantizer)


@pytest.mark.parametrize("kind", kinds(AnyModel), ids=lambda kind: kind.__name__)
def test_an_architecture_is_told_just_what_its_module_reads(kind, plan):
    found = [each for each in plan.site.config.scale.models.values() if type(each) is kind]
    found = found or pytest.skip(f"no model of scale laptop is a {kind.__name__}")
    read = import_module(f"{PACKAGE}.trajectories.architectures.{kind.module}").Settings
    for model in found:
        assert {field.name for field in fields(read)} == {*model.settings}, model


@pytest.mark.parametrize("kind", kinds(Optimizer), ids=lambda kind: kind.__name__)
def test_an_optimizer_is_told_just_what_its_module_reads(kind, plan):
    timeline = plan.site.timeline
    runs = [run for run in plan.site.config.runs.runs.values() if hasattr(run, "optimizer_in")]
    found = [run.optimizer_in(timeline) for run in runs]
    found = [each for each in found if type(each) is kind]
    assert found, f"no run of scale laptop has {kind.__name__}"
    read = import_module(f"{PACKAGE}.trajectories.optimizers.{kind.module}").Settings
    for optimizer in found:
        told = optimizer.settings(timeline.steps)
        assert {field.name for field in fields(read)} == {*told}, told


@pytest.mark.parametrize("kind", kinds(Objective), ids=lambda kind: kind.__name__)
def test_an_objective_is_told_just_what_its_module_reads(kind, plan):
    found = [plan.trajectories.train(name) for name in plan.site.config.runs.runs]
    told = [job.settings.objective for job in found if job.settings.objective.module == kind.module]
    assert told, f"no run of scale laptop has {kind.__name__}"
    read = import_module(f"{PACKAGE}.trajectories.objectives.{kind.module}").Settings
    for objective in told:
        assert {field.name for field in fields(read)} == {*objective.settings}, objective
