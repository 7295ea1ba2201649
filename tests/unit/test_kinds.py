"""What a kind is set to is given by its class of the configuration as a dataclass, and read as one
by the module that the class names: here, that both are the same one, also after the job border."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from ptq_dynamics.base.content import canonical
from ptq_dynamics.config import load
from ptq_dynamics.config.models import AnyModel
from ptq_dynamics.config.quantizers import Quantizer
from ptq_dynamics.engine.settings import decode, encode
from ptq_dynamics.graph import Plan
from ptq_dynamics.train import train
from ptq_dynamics.train.objectives.kinds import Objective
from ptq_dynamics.train.optimizers.kinds import Optimizer

PACKAGE = "ptq_dynamics"


def kinds(union):
    """The classes of a discriminated union."""
    return get_args(get_args(union)[0])


@pytest.fixture(scope="module")
def plan():
    return Plan(load({"scale": "laptop", "seed": 1, "figures": "all"}, Path("config")))


@pytest.fixture(scope="module")
def trained(plan):
    """Settings of every run, and the same as its job reads them."""
    jobs = [plan.trajectories.train(name) for name in plan.site.config.runs.runs]
    return [(job.settings, decode(train.run, encode(job.settings))) for job in jobs]


@pytest.mark.parametrize("kind", kinds(Quantizer), ids=lambda kind: kind.__name__)
def test_a_quantizer_is_told_what_its_stage_reads(kind, plan):
    quantizers = plan.site.config.quantizers
    found = [name for name, each in quantizers.items() if type(each) is kind]
    assert found, f"config/quantizers.yaml has no {kind.__name__}"
    run = import_module(f"{PACKAGE}.{kind.stage}").run
    (context,) = get_args(get_type_hints(run)["context"])
    (read,) = get_args(context)
    for name in found:
        settings = plan.quantization.quantize("constant-3e-3", name).settings
        assert type(settings.quantizer) is read, (name, settings)
        assert decode(run, encode(settings)) == settings


def require(told, read, folder):
    """That what is told is of the dataclass of its module, and so again after JSON."""
    name, settings = told
    kind = import_module(f"{PACKAGE}.trajectories.{folder}.{name}").Settings
    assert type(settings) is kind, told
    assert canonical(asdict(kind(**read))) == canonical(asdict(settings)), (told, read)


@pytest.mark.parametrize("kind", kinds(AnyModel), ids=lambda kind: kind.__name__)
def test_an_architecture_is_told_what_its_module_reads(kind, trained):
    models = [(one.model, read.model.shape) for one, read in trained]
    found = [each for each in models if each[0].architecture == kind.module]
    found = found or pytest.skip(f"no model of scale laptop is a {kind.__name__}")
    for model, read in found:
        require((model.architecture, model.shape), read, "architectures")


PARTS = [("optimizer", kind) for kind in kinds(Optimizer)]
PARTS += [("objective", kind) for kind in kinds(Objective)]


@pytest.mark.parametrize(("part", "kind"), PARTS, ids=[kind.__name__ for _, kind in PARTS])
def test_an_optimizer_or_objective_is_told_what_its_module_reads(part, kind, trained):
    told = [(getattr(one, part), getattr(read, part).settings) for one, read in trained]
    found = [each for each in told if each[0].module == kind.module]
    assert found, f"no run of scale laptop has {kind.__name__}"
    for one, read in found:
        require((one.module, one.settings), read, f"{part}s")
