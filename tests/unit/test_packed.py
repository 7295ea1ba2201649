"""Packed checkpoints against compressed-tensors' own reader and transformers' own loader."""

import shutil

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.models import packed
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.layers import round_to_nearest
from ptq_dynamics.quantize.storage import on_grids
from safetensors.torch import load_file, save_file
from tiny import TEXT, save
from transformers import AutoModelForCausalLM

GROUP = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("checkpoint"), "GPTNeoX")


def grids_of(folder, bits, zeros=False, mixed=False):
    """Rounded layers; if told, with zero points, and with groups of columns in no order."""
    generator = torch.Generator().manual_seed(bits)
    low, high, found = -(2 ** (bits - 1)), 2 ** (bits - 1), {}
    for name, layer in models.linear_layers(models.load(folder).cpu()).items():
        codes, scales = round_to_nearest(layer.weight.detach(), bits, GROUP)
        points = torch.randint(low, high, scales.shape, generator=generator).to(torch.int8)
        columns = torch.arange(codes.shape[1], dtype=torch.int32) // GROUP
        columns = columns[torch.randperm(len(columns), generator=generator)]
        found[name] = Grid(
            bits, codes, scales, points if zeros else None, columns if mixed else None
        )
    return found


@pytest.mark.parametrize(
    ("bits", "zeros", "mixed"),
    [(2, True, False), (3, False, False), (3, True, True), (4, True, False), (8, False, False)],
)
def test_grids_survive_saving_and_transformers_loads_their_weights(
    folder, tmp_path, bits, zeros, mixed
):
    grids = grids_of(folder, bits, zeros, mixed)
    on_grids(grids).save(folder, tmp_path / "packed")
    method = "gptq" if mixed else "compressed-tensors"
    assert packed.read_config(tmp_path / "packed")["quantization_config"]["quant_method"] == method
    found, ours = packed.grids(tmp_path / "packed"), models.load(tmp_path / "packed").cpu()
    assert found.keys() == grids.keys() and not hasattr(ours.config, "quantization_config")
    state = ours.state_dict()
    for name, grid in grids.items():
        wide = grid.groups().long()
        assert torch.equal(found[name].codes, grid.codes), name
        assert torch.equal(found[name].groups(), grid.groups()), name
        points = grid.zeros if zeros else torch.zeros_like(grid.scales)
        expected = grid.scales[:, wide] * (grid.codes.float() - points.float()[:, wide])
        assert torch.equal(state[f"{name}.weight"], expected), name
    for name, value in models.load(folder).state_dict().items():
        if name.removesuffix(".weight") not in grids:
            assert torch.equal(state[name], value.cpu()), name
    if not mixed:  # for which transformers needs GPTQModel
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
        with torch.no_grad():
            assert torch.equal(ours(TEXT.tokens).logits, theirs(TEXT.tokens).logits)


@pytest.mark.parametrize("kind", ["packed", "plain"])
def test_a_checkpoint_that_lacks_a_weight_is_a_problem(folder, tmp_path, kind):
    """transformers says so in its log and goes on with a random one."""
    target = tmp_path / "checkpoint"
    on_grids(grids_of(folder, 4)).save(folder, target)
    if kind == "plain":
        shutil.copytree(folder, target, dirs_exist_ok=True)
    tensors = load_file(target / "model.safetensors")
    del tensors["gpt_neox.final_layer_norm.bias"]
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(Problem, match=r"no weights for gpt_neox\.final_layer_norm\.bias"):
        models.load(target)
