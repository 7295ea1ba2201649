"""Packed checkpoints against compressed-tensors' own reader and transformers' own loader."""

import json
import shutil

import pytest
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure.loss import block_losses
from ptq_dynamics.models import packed
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.layers import round_to_nearest
from ptq_dynamics.quantize.storage import INDEX, Packed, exact, replace
from ptq_dynamics.train.architectures import architecture
from ptq_dynamics.train.settings import ModelSettings
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

MODEL = ModelSettings(
    "gpt_neox",
    {"layers": 2, "width": 64, "heads": 4, "feedforward": 128, "rotary_fraction": 0.25},
    context=32,
    vocabulary=96,
)
GROUP = 32
# Bytes of names and shapes in the files of this model.
NAMES = 8000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    architecture.create(MODEL, seed=0).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def blocks():
    return torch.randint(0, 96, (8, 32), generator=torch.Generator().manual_seed(1))


def grids_of(folder, bits, zeros=False, mixed=False):
    """Rounded layers; if told, with zero points, and with groups of columns in no order."""
    generator = torch.Generator().manual_seed(bits)
    found = {}
    for name, layer in models.linear_layers(models.load(folder).cpu()).items():
        codes, scales = round_to_nearest(layer.weight.detach(), bits, GROUP)
        points = torch.randint(
            -(2 ** (bits - 1)), 2 ** (bits - 1), scales.shape, generator=generator
        )
        columns = torch.arange(codes.shape[1], dtype=torch.int32) // GROUP
        if mixed:
            columns = columns[torch.randperm(len(columns), generator=generator)]
        found[name] = Grid(
            bits,
            codes,
            scales,
            points.to(torch.int8) if zeros else None,
            columns if mixed else None,
        )
    return found


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 80), st.integers(0, 2**31))
def test_unpacking_undoes_compressed_tensors_packing(bits, rows, count, seed):
    generator = torch.Generator().manual_seed(seed)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)
    values = torch.randint(low, high, (rows, count), generator=generator).to(torch.int8)
    words = pack_to_int32(values, bits)
    assert torch.equal(packed.unpack(words, bits, count), values)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", range(1, 9))
def test_transformers_loads_the_same_weights(folder, blocks, tmp_path, bits, zeros):
    grids = grids_of(folder, bits, zeros)
    Packed(grids).save(folder, tmp_path / "packed")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    with torch.no_grad():
        theirs = plain(blocks).logits
        ours = models.load(tmp_path / "packed").cpu()
        assert torch.equal(ours(blocks).logits, theirs)
    layers = models.linear_layers(plain)
    for name, layer in models.linear_layers(ours).items():
        assert type(layer) is torch.nn.Linear
        assert torch.equal(layer.weight, layers[name].weight), name
        assert torch.equal(layer.weight, grids[name].weight()), name
    assert not hasattr(ours.config, "quantization_config")


# With vLLM's kernels for 4 bits, heads are of 64 and sides of layers are multiples of 128.
SERVED = ModelSettings(
    "gpt_neox",
    {"layers": 2, "width": 128, "heads": 2, "feedforward": 256, "rotary_fraction": 0.25},
    context=64,
    vocabulary=96,
)


@pytest.mark.slow
def test_vllm_has_our_losses(blocks, tmp_path):
    """Where vLLM is installed; its kernels compute in 16 bits."""
    vllm = pytest.importorskip("vllm")
    architecture.create(SERVED, seed=0).save_pretrained(tmp_path / "whole")
    Packed(grids_of(tmp_path / "whole", 4)).save(tmp_path / "whole", tmp_path / "packed")
    engine = vllm.LLM(
        model=str(tmp_path / "packed"),
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=SERVED.context,
        enforce_eager=True,
        gpu_memory_utilization=0.3,
        seed=0,
    )
    prompts = [vllm.TokensPrompt(prompt_token_ids=block.tolist()) for block in blocks]
    asked = vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, detokenize=False)
    theirs = []
    for block, found in zip(blocks, engine.generate(prompts, asked), strict=True):
        # Nothing is known of the first token.
        pairs = zip(block[1:].tolist(), found.prompt_logprobs[1:], strict=True)
        theirs.append(-sum(known[token].logprob for token, known in pairs) / (len(block) - 1))
    ours, whole = (
        block_losses(models.load(tmp_path / name), blocks, 4).double()
        for name in ("packed", "whole")
    )
    errors = (torch.tensor(theirs, dtype=torch.float64) - ours).abs()
    assert errors.max() < 0.01
    assert errors.mean() < (whole - ours).abs().mean()


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_grids_survive_saving(folder, tmp_path, bits, zeros, mixed):
    grids = grids_of(folder, bits, zeros, mixed)
    Packed(grids).save(folder, tmp_path / "packed")
    method = "gptq" if mixed else "compressed-tensors"
    assert packed.quantization(tmp_path / "packed")["quant_method"] == method
    found = packed.grids(tmp_path / "packed")
    assert found.keys() == grids.keys()
    state = models.dequantized(tmp_path / "packed")
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


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("bits", [3, 4, 8])
def test_files_are_as_large_as_the_bits(folder, tmp_path, bits, mixed):
    grids = grids_of(folder, bits, mixed=mixed)
    Packed(grids).save(folder, tmp_path / "packed")
    weights = sum(grid.codes.numel() for grid in grids.values())
    before, after = (
        sum(file.stat().st_size for file in path.glob("*.safetensors"))
        for path in (folder, tmp_path / "packed")
    )
    # A group has a scale of 32 bits, and in GPTQ's format a zero point.
    each = bits + (32 + (bits if mixed else 0)) / GROUP
    assert after - (before - 4 * weights) <= weights * each / 8 + NAMES


def test_a_checkpoint_in_several_files_stays_in_several(folder, blocks, tmp_path):
    models.load(folder).save_pretrained(tmp_path / "parts", max_shard_size="100KB")
    files = sorted(path.name for path in (tmp_path / "parts").glob("*.safetensors"))
    assert len(files) > 1
    for source, target in ((folder, tmp_path / "one"), (tmp_path / "parts", tmp_path / "many")):
        Packed(grids_of(folder, 4)).save(source, target)
    assert sorted(path.name for path in (tmp_path / "many").glob("*.safetensors")) == files
    index = json.loads((tmp_path / "many" / INDEX).read_text())
    held = {name: load_file(tmp_path / "many" / name).keys() for name in files}
    assert index["weight_map"] == {key: name for name, keys in held.items() for key in keys}
    found = [
        load(path)(blocks).logits
        for path in (tmp_path / "one", tmp_path / "many")
        for load in (models.load, AutoModelForCausalLM.from_pretrained)
    ]
    assert all(torch.equal(logits.cpu(), found[0].cpu()) for logits in found[1:])


def test_losses_are_those_of_the_dense_weights(folder, blocks, tmp_path):
    grids = grids_of(folder, 3, mixed=True)
    Packed(grids).save(folder, tmp_path / "packed")
    dense = models.load(folder)
    for name, layer in models.linear_layers(dense).items():
        layer.weight.data.copy_(grids[name].weight())
    expected = block_losses(dense, blocks, 4)
    assert torch.equal(block_losses(models.load(tmp_path / "packed"), blocks, 4), expected)


def test_weights_off_their_grid_are_a_problem(folder):
    name, grid = next(iter(grids_of(folder, 4).items()))
    weight = grid.weight()
    assert exact(name, grid, weight) is grid
    weight[3, 5] *= 1 + 1e-6
    with pytest.raises(Problem, match=f"the weights of {name} are not on the grid"):
        exact(name, grid, weight)


def test_a_layer_that_the_files_do_not_name_is_a_problem(folder, tmp_path):
    with pytest.raises(Problem, match=r"has no gpt_neox\.heap\.weight"):
        replace(folder, tmp_path / "packed", {"gpt_neox.heap": {}}, {})


@pytest.mark.parametrize("kind", ["packed", "plain"])
def test_a_checkpoint_that_lacks_a_weight_is_a_problem(folder, tmp_path, kind):
    """transformers says so in its log and goes on with a random one."""
    target = tmp_path / "checkpoint"
    Packed(grids_of(folder, 4)).save(folder, target)
    if kind == "plain":
        shutil.copytree(folder, target, dirs_exist_ok=True)
    tensors = load_file(target / "model.safetensors")
    del tensors["gpt_neox.final_layer_norm.bias"]
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(Problem, match=r"no weights for gpt_neox\.final_layer_norm\.bias"):
        models.load(target)
