"""Types of GGUF files, and existing files, against the package `gguf` and transformers."""

import gguf
import numpy as np
import pytest
import torch
from ggufs import written
from ptq_dynamics import models
from ptq_dynamics.cli import own_scale
from ptq_dynamics.config import read_yaml
from ptq_dynamics.quantize.methods.gguf import Gguf, GgufFile
from support import ROOT, one_line, plan
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

ENTRIES = {
    name: entry
    for name, entry in read_yaml(ROOT / "config/quantizers.yaml").items()
    if entry["method"] == "gguf"
}
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False}


@pytest.mark.parametrize("name", ENTRIES)
def test_weights_are_those_that_transformers_reads_in_a_file_of_the_type(name, tmp_path):
    """Of a checkpoint in bfloat16."""
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**SHAPE)).bfloat16().save_pretrained(tmp_path / "model")
    kind = Gguf(**ENTRIES[name])
    source = models.load(tmp_path / "model", torch.float32)
    written(source, tmp_path / "a.gguf", gguf.GGMLQuantizationType[kind.type])
    kind.quantize(tmp_path / "model", None).save(tmp_path / "model", tmp_path / "saved")
    found = models.load(tmp_path / "saved")
    expected = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="a.gguf", dtype=torch.float32
    )
    assert found.dtype == torch.float32
    for layer, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[layer], value, rtol=0, atol=1e-6)
    change = (found.lm_head.weight - source.lm_head.weight).abs().max()
    assert change == 0 and not torch.equal(
        found.model.layers[0].mlp.up_proj.weight, source.model.layers[0].mlp.up_proj.weight
    )


def test_transposed_layers_are_rounded_along_their_inputs(tmp_path):
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 64, "n_positions": 16}
    GPT2LMHeadModel(GPT2Config(**shape)).save_pretrained(tmp_path / "model")
    made = Gguf(**ENTRIES["q8_0"]).quantize(tmp_path / "model", None)
    made.save(tmp_path / "model", tmp_path / "saved")
    before, after = (
        models.linear_layers(models.load(tmp_path / name)) for name in ("model", "saved")
    )
    for name, layer in before.items():
        blocks = layer.weight.detach().unflatten(1, (-1, 32))
        gap = (after[name].weight.detach().unflatten(1, (-1, 32)) - blocks).abs()
        assert (gap <= 0.57 * blocks.abs().amax(2, keepdim=True) / 127).all()


def test_other_types_and_widths_are_one_line():
    with one_line("only llama.cpp quantizes to q4_k_m"):
        own_scale.quantizers(["q4_k_m"], [])
    model = plan("smoke").site.config.scale.models["kumar-70m"]
    assert "do not divide the layer width 16" in Gguf(**ENTRIES["q4_0"]).refuses(model)


TYPES = gguf.GGMLQuantizationType
KINDS = [(LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM)]


@pytest.mark.parametrize(("kind", "config", "model"), [("Q5_1", *KINDS[0]), ("Q8_0", *KINDS[1])])
def test_a_file_has_the_weights_that_gguf_dequantizes(tmp_path, config, model, kind):
    torch.manual_seed(0)
    model(config(**SHAPE)).bfloat16().save_pretrained(tmp_path / "model")
    source, path = models.load(tmp_path / "model", torch.float32), tmp_path / "a.gguf"
    written(source, path, TYPES[kind])
    ((name, entry),) = own_scale.quantizers(["a.gguf"], [], str(tmp_path)).items()
    # Of a code alone, as the method of the same name has them.
    assert (name, entry["bits"]) == ("a.gguf", ENTRIES[kind.lower()]["bits"])
    made = GgufFile(**{**entry, "file": str(path)}).quantize(tmp_path / "model", None)
    made.save(tmp_path / "model", tmp_path / "saved")
    state = models.load(tmp_path / "saved").state_dict()
    for name, value in source.state_dict().items():
        if name.removesuffix(".weight") in made.weights:
            array = gguf.quantize(value.numpy(), TYPES[kind])
            value = torch.from_numpy(gguf.dequantize(array, TYPES[kind]))
        torch.testing.assert_close(state[name], value, rtol=0, atol=1e-6)


def test_k_quants_are_read(tmp_path):
    torch.manual_seed(0)
    shape = {**SHAPE, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    model, random = Qwen2ForCausalLM(Qwen2Config(**shape)), np.random.default_rng(0)
    raw, weights = {}, model.state_dict()
    for name, layer in models.linear_layers(model).items():
        # Blocks of 256 weights: two scales in float16, and codes.
        blocks = random.integers(0, 256, (len(layer.weight), 144), np.uint8)
        blocks[:, :4] = np.array([1e-3, 1e-3], np.float16).view(np.uint8)
        raw[f"{name}.weight"] = blocks
        weights[f"{name}.weight"].copy_(torch.from_numpy(gguf.dequantize(blocks, TYPES.Q4_K)))
    written(model, tmp_path / "a.gguf", TYPES.Q4_K, raw)
    exact = {name: value.clone() for name, value in weights.items()}
    for name in raw:
        weights[name] += 1e-3 * torch.randn_like(weights[name])
    model.save_pretrained(tmp_path / "model")
    entry = GgufFile.of(tmp_path / "a.gguf", str(tmp_path / "a.gguf"))
    entry.quantize(tmp_path / "model", None).save(tmp_path / "model", tmp_path / "saved")
    assert entry.bits == 4
    for name, value in models.load(tmp_path / "saved").state_dict().items():
        torch.testing.assert_close(value, exact[name], rtol=0, atol=1e-6)


def test_files_that_do_not_fit_are_one_line(tmp_path):
    for seed, (config, kind) in enumerate([*KINDS, *KINDS]):
        torch.manual_seed(seed)
        kind(config(**SHAPE)).save_pretrained(tmp_path / str(seed))
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 16}
    GPT2LMHeadModel(GPT2Config(**shape)).save_pretrained(tmp_path / "of another type")
    path = tmp_path / "a.gguf"
    written(models.load(tmp_path / "1"), path, TYPES.Q8_0)
    entry = GgufFile.of(path, str(path))
    for other in ("0", "3", "of another type"):
        with one_line("a.gguf", "differs from"):
            entry.quantize(tmp_path / other, None)
    path.write_bytes(path.read_bytes().replace(b"qwen2", b"qwerz"))
    with one_line("a.gguf has changed"):
        entry.quantize(tmp_path / "1", None)
    with one_line("transformers cannot read", "qwerz"):
        GgufFile.of(path, str(path)).quantize(tmp_path / "1", None)
    path.write_bytes(b"GGUF")
    with one_line("a.gguf is no GGUF file"):
        GgufFile.of(path, str(path))
    with one_line("has no b.gguf"):
        own_scale.quantizers(["b.gguf"], [], str(tmp_path))
