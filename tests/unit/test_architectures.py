"""Every architecture: transformers' own class, trained."""

from functools import cache

import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.names import LAYERS
from ptq_dynamics.trajectories.trajectory import CURVE
from support import plan, tiny_config
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

# Proportions of the real ones: heads that share keys and values, tied or untied heads.
SIZE = {"layers": 2, "width": 64, "heads": 4, "context": 16, "rotary_base": 10000.0}
MODELS = {
    "llama": {"feedforward": 176, "key_value_heads": 4, "tied": False},
    "smollm3": {"feedforward": 336, "key_value_heads": 1, "tied": True, "no_rotary_every": 2},
    "olmo": {"feedforward": 256, "key_value_heads": 4, "tied": True},
    "olmo2": {"feedforward": 336, "key_value_heads": 1, "tied": False},
    "apertus": {"feedforward": 336, "key_value_heads": 1, "tied": False},
    "qwen3": {"feedforward": 176, "key_value_heads": 4, "tied": True},
    "olmoe": {"feedforward": 48, "key_value_heads": 2, "tied": False, "experts": 4, "active": 2},
    "mamba2": {"feedforward": 128, "state": 8, "chunk": 8},
}
SHAPES = {name: {"architecture": name, **SIZE, **own} for name, own in MODELS.items()}
del SHAPES["mamba2"]["rotary_base"]


def config_of(folder):
    """The tiny configuration with a run of every architecture."""
    run = {"schedule": "constant", "peak_lr": 1e-2, "length": "12/190", "warmup": "3/190"}
    run |= {"checkpoint_every": "2/190", "state_every": "6/190"}
    runs = {f"a-{name}": {**run, "model": name} for name in MODELS}
    return tiny_config(folder, {"models": SHAPES}, runs={"runs": runs})


@pytest.fixture(scope="module")
def built(tmp_path_factory, workspace):
    """A workspace of its own, on the corpus that all share."""
    folder = tmp_path_factory.mktemp("architectures")
    return workspace.beside(folder, plan("smoke", config_of(folder)))


@pytest.fixture(scope="module")
def last(built):
    """Folder of a run's last checkpoint by architecture, with its training curve."""

    @cache
    def do(name):
        made = built.make(built.plan.trajectories.train(f"a-{name}"))
        return made.subfolder(made.facts["checkpoints"][-1]["id"]), pd.read_csv(made.file(CURVE))

    return do


@pytest.mark.parametrize("name", MODELS)
def test_a_fresh_model_is_of_transformers_own_class_and_as_large_as_planned(built, name):
    shape = built.plan.site.config.scale.models[name]
    model = models.plain(shape.create(300, seed=3))
    assert type(model).__name__.lower() == f"{name}forcausallm"
    for theirs, ours in {"num_key_value_heads": "key_value_heads", "state_size": "state"}.items():
        assert getattr(model.config, theirs, None) == getattr(shape, ours, None)
    assert {layer.in_features for layer in models.linear_layers(model).values()} == {*shape.widths}
    tied = model.lm_head.weight is model.get_input_embeddings().weight
    assert tied == getattr(shape, "tied", False)
    assert sum(each.numel() for each in model.parameters()) == shape.parameters(300)
    assert getattr(model.config, "no_rope_layers", [1, 0]) == [1, 0]
    ends = getattr(shape, "unquantized", ())
    left = models.left_out(model, models.linear_layers(model))
    assert len(left) == shape.layers * len(ends) and all(each.endswith(ends) for each in left)


@pytest.mark.parametrize("name", ["olmoe", "mamba2"])
def test_only_matrices_that_an_architecture_names_stay_in_full_precision(built, last, name):
    last(name)
    made = built.make(built.plan.measurements.measure(f"a-{name}", "gptq4", "all", 100))
    (ending,) = built.plan.site.config.scale.models[name].unquantized
    left = made.facts["left_out"].values()
    assert len(left) == len(made.facts["checkpoints"])
    assert {each.endswith(ending) for names in left for each in names} == {True}
    # Outputs of an expert that no token reaches have no error, but its weights are quantized.
    errors = pd.read_csv(made.file(LAYERS)).weight_relative
    assert errors.gt(0).all() and errors.lt(0.1).all()


@pytest.mark.parametrize("name", ["apertus", "olmoe", "mamba2"])
def test_a_trained_model_has_the_loss_that_transformers_gives_its_checkpoint(last, corpus, name):
    folder, curve = last(name)
    assert curve.loss.iloc[-1] < curve.loss.iloc[0] - 0.1
    blocks = tokens.blocks(corpus, "validation", 16, 16)
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder).eval()(blocks, labels=blocks).loss
    ours = models.block_losses(models.load(folder), blocks, 16)
    assert ours.mean() == pytest.approx(float(expected), rel=1e-5)
