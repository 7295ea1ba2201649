"""Logits come from all weights of a checkpoint, and from the attention that config.json names."""

import pytest
import torch
import transformers
from ptq_dynamics import models
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.recipe import Recipe
from safetensors.torch import load_file, save_file
from support import GPTQ, one_line, plan
from tiny import TEXT, create, edit, save, uneven

# Options of kinds besides their shape.
MORE = {"OPT": {"ffn_dim": 64, "word_embed_proj_dim": 32}}
SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
MORE |= {"GPTJ": {**SMALL, "rotary_dim": 8}, "CodeGen": {**SMALL, "rotary_dim": 8}}
MORE["OpenAIGPT"] = SMALL
MORE["DeepseekV3"] = {"num_nextn_predict_layers": 1, "num_key_value_heads": 4}
# Attention that the default of transformers, sdpa, leaves out.
ODD = {"Gemma2": {"attn_logit_softcapping": 0.5, "head_dim": 8}, "Doge": {}}


def losses(model):
    return models.block_losses(model, TEXT.tokens, 8)


@pytest.mark.parametrize("kind", ODD)
def test_attention_is_that_of_the_configuration(kind, tmp_path):
    uneven(create(kind, **ODD[kind])).save_pretrained(tmp_path)
    load = transformers.AutoModelForCausalLM.from_pretrained
    with_it, without = (load(tmp_path, attn_implementation=name) for name in ("eager", "sdpa"))
    assert torch.equal(losses(models.load(tmp_path)), losses(with_it))
    assert not torch.allclose(losses(with_it), losses(without), rtol=1e-3)


def test_calibration_refuses_alibi_that_counts_twice(tmp_path):
    save(tmp_path / "model", "Falcon", alibi=True, new_decoder_architecture=False)
    with one_line("other logits of this falcon under eager attention", "use rtn"):
        Gptq(**GPTQ | {"bits": 4, "group_size": 16}).quantize(tmp_path / "model", TEXT)


def test_gptqmodel_refuses_capped_logits(tmp_path):
    other = plan("smoke").site.config.quantizers["gptqmodel-4bit"]
    folder = save(tmp_path / "model", "Gemma2", **ODD["Gemma2"])
    with one_line("gptqmodel may ignore attn_logit_softcapping", "use gptq"):
        next(other.quantize_all([folder], TEXT, None))


def test_a_recipe_that_would_round_nothing_is_refused(tmp_path):
    recipe = {"method": "recipe", "bits": 4, "scheme": "MXFP4A16"}
    made = Recipe(**recipe, modifiers=[{"QuantizationModifier": {}}])
    with one_line("no recipe fits layers of falcon"):
        made.quantize(save(tmp_path / "model", "Falcon"), TEXT)


BIAS, MASK = (32,), (1, 1, 64, 64)


@pytest.mark.parametrize(
    ("kind", "name", "shape", "is_used"),
    [
        ("Llama", "model.layers.0.self_attn.q_proj.bias", BIAS, True),
        ("Llama", "model.layers.0.self_attn.q_proj.lora_A.weight", BIAS, True),
        ("Llama", "model.layers.0.self_attn.q_norm.weight", BIAS, True),
        ("Llama", "model.layers.2.mlp.up_proj.weight", BIAS, True),
        ("Llama", "lm_head.bias", (96,), True),
        ("GPT2", "h.2.ln_1.weight", BIAS, True),
        # Buffers, another head, and a layer that predicts a token more.
        ("Llama", "model.layers.0.self_attn.rotary_emb.inv_freq", (4,), False),
        ("GPTNeoX", "gpt_neox.layers.0.attention.masked_bias", (1,), False),
        ("GPTJ", "transformer.h.0.attn.bias", MASK, False),
        ("OpenAIGPT", "h.0.attn.bias", MASK, False),
        ("CodeGen", "transformer.h.0.attn.causal_mask", MASK, False),
        ("OPT", "model.decoder.version", (1,), False),
        ("Falcon", "transformer.h.0.self_attention.maybe_rotary.inv_freq", (4,), False),
        ("Llama", "v_head.summary.weight", BIAS, False),
        ("Llama", "model.extra_blocks.0.mlp.weight", BIAS, True),
        ("Llama", "model.vision_tower.merge.weight", BIAS, False),
        ("DeepseekV3", "model.layers.2.eh_proj.weight", BIAS, False),
    ],
)
def test_no_weight_is_dropped_without_a_word(kind, name, shape, is_used, tmp_path):
    file = save(tmp_path, kind, **MORE.get(kind, {})) / "model.safetensors"
    before, tensors = losses(models.load(tmp_path)), load_file(file)
    if name.startswith("h."):  # as of a model that was saved without its head
        tensors = {key.removeprefix("transformer."): value for key, value in tensors.items()}
    save_file(tensors | {name: torch.ones(shape)}, file, {"format": "pt"})
    if is_used:
        with one_line(f"the model of its config.json has no {name}"):
            models.load(tmp_path)
    else:
        assert torch.equal(losses(models.load(tmp_path)), before)


def test_further_layers_are_not_dropped(tmp_path):
    edit(save(tmp_path) / "config.json", num_hidden_layers=1)
    with one_line("the model of its config.json has no model.layers.1."):
        models.load(tmp_path)


def test_a_tensor_of_another_shape_is_named_with_both(tmp_path):
    edit(save(tmp_path) / "config.json", vocab_size=90)
    with one_line("lm_head.weight has the shape [96, 32], and its config.json asks for [90, 32]"):
        models.load(tmp_path)
