"""Logits are those of all weights in a checkpoint, with attention as its config.json asks."""

import pytest
import torch
import transformers
from ptq_dynamics import models
from ptq_dynamics.quantize.methods.gptq import Gptq
from safetensors.torch import load_file, save_file
from support import GPTQ, one_line
from tiny import TEXT, create, edit, save, uneven

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


def test_alibi_of_falcon_counts_once(tmp_path):
    save(tmp_path / "model", "Falcon", alibi=True, new_decoder_architecture=False)
    with one_line("adds the alibi of Falcon twice", "rtn"):
        Gptq(**GPTQ | {"bits": 4, "group_size": 16}).quantize(tmp_path / "model", TEXT)


# Weights that a model has no use for, and what is no weight of it: buffers, and other heads.
MORE = {
    "model.layers.0.self_attn.q_proj.bias": (32,),
    "lm_head.bias": (96,),
    "model.layers.0.self_attn.rotary_emb.inv_freq": None,
    "model.layers.0.self_attn.masked_bias": None,
    "v_head.summary.weight": None,
}


@pytest.mark.parametrize("name", MORE)
def test_no_weight_is_dropped_without_a_word(name, tmp_path):
    file = save(tmp_path) / "model.safetensors"
    before = losses(models.load(tmp_path))
    save_file(load_file(file) | {name: torch.ones(MORE[name] or 4)}, file, {"format": "pt"})
    if MORE[name]:
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
