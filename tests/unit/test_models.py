"""Checkpoints as others publish them: in several files, in bfloat16, larger than a device."""

import copy
import json
from contextlib import contextmanager

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure.carried import carried
from ptq_dynamics.measure.names import CARRIED, CARRIED_BY_ONE
from ptq_dynamics.quantize.layers import model_errors
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.quantize.storage import original
from support import GPTQ
from tiny import TEXT


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Its checkpoint in bfloat16 and several files."""
    folder = tmp_path_factory.mktemp("shards")
    copy.deepcopy(model).bfloat16().save_pretrained(folder, max_shard_size="45KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def test_blocks_carry_what_the_loss_loses_without_their_matrices(model):
    before, inputs = copy.deepcopy(model.state_dict()), torch.arange(32).view(2, 16)
    found = carried(model, inputs, 1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    def without(*blocks):
        other = copy.deepcopy(model)
        for name, weight in other.named_parameters():
            if weight.ndim == 2 and any(f".layers.{block}." in name for block in blocks):
                weight.data.zero_()
        return float(models.block_losses(other, inputs, 1).mean())

    blocks = range(model.config.num_hidden_layers)
    ones = [without(block) - without() for block in blocks]
    assert found[CARRIED] == pytest.approx(without(*blocks) - without(), abs=1e-5)
    assert found[CARRIED_BY_ONE] == pytest.approx(sum(ones) / len(ones), abs=1e-5)
    assert abs(found[CARRIED]) > 1e-3


def test_code_that_no_job_put_beside_a_model_does_not_run(tmp_path, monkeypatch):
    """Jobs link no code unless it is trusted (test_custom_code)."""
    content = {"auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", **content}))
    (tmp_path.parent / "own.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path.parent)
    monkeypatch.setattr("builtins.input", lambda _: "y")
    with pytest.raises(Problem, match="holds no readable checkpoint"):
        models.load(tmp_path)


@pytest.fixture
def spread(monkeypatch, tmp_path):
    """Within it there is memory for a part of the model alone; the rest is on the disk."""

    @contextmanager
    def do():
        with monkeypatch.context() as patch, models.offloading(tmp_path):
            patch.setattr(models, "room", lambda: {"cpu": 50_000})
            yield
        assert not (tmp_path / models.OFFLOADED).exists()

    return do


METHODS = [
    Gptq(**GPTQ | {"bits": 3, "group_size": 16}),
    Awq(method="awq", bits=4, group_size=16, symmetric=True, duo_scaling=True, grid_points=5),
    Rtn(method="rtn", bits=4, group_size=16),
]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.method)
def test_quantizers_do_the_same_to_a_model_that_is_spread(method, folder, spread):
    def results():
        found, model = method.quantize(folder, TEXT).weights, models.load(folder)
        errors = model_errors(model, original(folder, model), found, TEXT.batches())
        return dict(found), errors, models.block_losses(model, TEXT.tokens, 4)

    before, known, expected = results()
    with spread():
        assert "disk" in models.load(folder).hf_device_map.values()
        weights, errors, losses = results()
    assert weights.keys() == before.keys()
    different = [layer for layer, each in weights.items() if not torch.equal(each, before[layer])]
    assert not different and errors == known and torch.equal(losses, expected)
