"""Types of GGUF files, against a file of the package `gguf` that transformers reads."""

import gguf
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.cli import own_scale
from ptq_dynamics.config import read_yaml
from ptq_dynamics.quantize.methods.gguf import Gguf
from support import ROOT, one_line, plan
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
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
QWEN2 = gguf.MODEL_ARCH.QWEN2


def written(model, path, kind):
    """Write a file as llama.cpp does, with the linear layers of blocks in a type."""
    writer, config = gguf.GGUFWriter(path, "qwen2"), model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(QWEN2, config.num_hidden_layers)
    layers = {f"{name}.weight" for name in models.linear_layers(model)}
    for name, value in model.state_dict().items():
        array = value.float().numpy()
        type_ = kind if name in layers else gguf.GGMLQuantizationType.F32
        raw = gguf.quantize(array, type_)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), raw, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
