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
from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

GROUP = 32
SHAPE = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE)).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def blocks():
    return torch.randint(0, 96, (8, 32), generator=torch.Generator().manual_seed(1))


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


@pytest.mark.parametrize(("bits", "zeros"), [(2, True), (3, False), (4, True), (8, False)])
def test_transformers_loads_the_same_weights(folder, blocks, tmp_path, bits, zeros):
    grids = grids_of(folder, bits, zeros)
    on_grids(grids).save(folder, tmp_path / "packed")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    ours = models.load(tmp_path / "packed").cpu()
    with torch.no_grad():
        theirs = plain(blocks).logits
        assert torch.equal(ours(blocks).logits, theirs)
    layers = models.linear_layers(plain)
    for name, layer in models.linear_layers(ours).items():
        assert type(layer) is torch.nn.Linear
        assert torch.equal(layer.weight, layers[name].weight), name
        assert torch.equal(layer.weight, grids[name].weight()), name
    assert not hasattr(ours.config, "quantization_config")


@pytest.mark.parametrize(
    ("bits", "zeros", "mixed"), [(3, False, False), (3, True, True), (4, True, False)]
)
def test_grids_survive_saving(folder, tmp_path, bits, zeros, mixed):
    grids = grids_of(folder, bits, zeros, mixed)
    on_grids(grids).save(folder, tmp_path / "packed")
    method = "gptq" if mixed else "compressed-tensors"
    assert packed.read_config(tmp_path / "packed")["quantization_config"]["quant_method"] == method
    found, state = packed.grids(tmp_path / "packed"), models.dequantized(tmp_path / "packed")
    assert found.keys() == grids.keys()
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
