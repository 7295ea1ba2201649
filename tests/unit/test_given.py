"""Models of every kind that people bring: GPTQ on each against the float64 reference, and how the
other quantizers take them."""

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.int8 import Int8
from ptq_dynamics.quantize.methods.rtn import Rtn
from reference import compare
from support import GPTQ
from tiny import TEXT, create, save

HEAD = {"head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
# Classes of transformers, with what each needs besides.
DENSE = {
    "GPT2": {},
    "GPTNeoX": {},
    "Llama": {"tie_word_embeddings": True},
    "Qwen2": {},
    "Qwen3": HEAD,
    # These two lose their causal mask in llm-compressor.
    "Mistral": {},
    "Phi3": {"pad_token_id": 0},
    "Gemma2": {**HEAD, "attn_logit_softcapping": 0.5},
    "Gemma3Text": HEAD,
    "Olmo2": {},
    "Apertus": {},
    "SmolLM3": {"pad_token_id": 0},
    "Phi": {},
}
SPARSE = {"Qwen3Moe": {**EXPERTS, **HEAD, "moe_intermediate_size": 32}, "Olmoe": EXPERTS}
SPARSE["Mixtral"] = SPARSE["Phimoe"] = {"num_local_experts": 4, "num_experts_per_tok": 2}
STATES = {"num_heads": 2, "head_dim": 32, "state_size": 8, "n_groups": 1, "chunk_size": 8}
SPARSE["Qwen2Moe"] = {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
STATE_SPACE = {"Mamba2": STATES, "Mamba": {"state_size": 8}}
# These do not name their blocks, pass the mask by its place, divide weights in a pass, and have
# routers of another name.
PARTS = {"num_hidden_layers": 3, "block_types": ["recurrent", "recurrent", "attention"]}
ODD = {
    "BioGpt": {},
    "RecurrentGemma": {**PARTS, "attention_window_size": 16},
    "Rwkv": {"context_length": 64, "attention_hidden_size": 32, "rescale_every": 1},
    "HunYuanMoEV1": {"num_experts": 4, "moe_topk": [2, 2], **HEAD},
}
# Of both blocks together.
KEPT = dict.fromkeys(SPARSE, ("gate.weight",)) | {"Mamba2": ("conv1d.weight",)}
KEPT["Qwen2Moe"] = ("gate.weight", "shared_expert_gate.weight")
KEPT["Phimoe"] = ("router.weight",)
KEPT["HunYuanMoEV1"] = ("gate.wg.weight",)
KEPT["Rwkv"] = tuple(
    f"time_mix_{part}" for part in ("key", "value", "receptance", "key", "receptance")
)
GATES = [f"{gate}_gate_{part}" for gate in ("input", "recurrent") for part in ("weight", "bias")]
KEPT["RecurrentGemma"] = ("conv_1d.weight", *GATES)
KEPT["Mamba"] = ("A_log", "conv1d.weight", "dt_proj.weight")
GRID = {"bits": 4, "group_size": 16}
OTHERS = [
    Rtn(method="rtn", **GRID),
    Awq(method="awq", symmetric=True, duo_scaling=True, grid_points=4, **GRID),
    Int8(method="int8", bits=8, threshold=6.0),
]
# Where llm-compressor knows no layers that could take up scales, and what transformers 5.17 saves
# without its experts.
REFUSED = {("awq", "Phi"): "AWQ has no mapping for", ("awq", "Olmo2"): "AWQ has no mapping for"}
REFUSED["awq", "Qwen3Moe"] = "scales model.layers.0.mlp.gate, which is not quantized"
REFUSED["awq", "Qwen2Moe"] = REFUSED["awq", "Qwen3Moe"]
REFUSED["int8", "Mixtral"] = REFUSED["int8", "Phimoe"] = "no weights for model.layers.0.mlp.experts"


def loss(model):
    return float(models.block_losses(model, TEXT.tokens, 8).mean())


def packed_loss(kind, folder, target):
    kind.quantize(folder, TEXT).save(folder, target)
    return loss(models.load(target))


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("GPT2", "Mistral") else pytest.param(name, marks=pytest.mark.slow)
        for name in (*DENSE, *SPARSE, *STATE_SPACE, *ODD)
    ],
)
def test_gptq_gives_the_codes_of_the_reference(name, tmp_path):
    folder = save(tmp_path / "model", name, **{**DENSE, **SPARSE, **STATE_SPACE, **ODD}[name])
    made = Gptq(**GPTQ | GRID).quantize(folder, TEXT)
    differ = compare(folder, TEXT, made.weights, bits=4, group=16)
    assert set(differ.values()) == {0.0}, differ
    left = models.left_out(models.load(folder), made.weights)
    assert len(left) == 2 * len(KEPT.get(name, ()))
    assert all(each.endswith(KEPT[name]) for each in left)
    # What is saved is what was made, also for transposed layers and experts.
    made.save(folder, tmp_path / "packed")
    found = models.linear_layers(models.load(tmp_path / "packed"))
    assert all(torch.equal(found[each].weight, made.weights[each].float()) for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.method)
@pytest.mark.parametrize("name", [*DENSE, *SPARSE])
def test_other_quantizers_take_every_kind(name, kind, tmp_path):
    folder = save(tmp_path / "model", name, **{**DENSE, **SPARSE}[name])
    before = loss(models.load(folder, torch.float32))
    if (kind.method, name) in REFUSED:
        with pytest.raises(Problem, match=REFUSED[kind.method, name]):
            packed_loss(kind, folder, tmp_path / "packed")
        return
    made = kind.quantize(folder, TEXT)
    made.save(folder, tmp_path / "packed")
    assert abs(loss(models.load(tmp_path / "packed")) - before) < 0.01
    left = models.left_out(models.load(folder), made.weights)
    # bitsandbytes leaves experts alone that lie in one tensor.
    is_sparse = name in SPARSE
    assert bool(left) == is_sparse
    kept = 2 * len(KEPT.get(name, ()))
    assert (len(left) > kept) == (is_sparse and kind.method == "int8")


def test_int8_saves_a_model_whose_settings_for_sampling_contradict_each_other(tmp_path):
    folder = save(tmp_path / "model")
    (folder / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.5}')
    assert packed_loss(OTHERS[2], folder, tmp_path / "packed") > 0


@pytest.mark.parametrize(
    ("name", "kind"), [("GPT2", Gptq(**GPTQ | GRID)), ("Llama", OTHERS[1]), ("GPT2", OTHERS[0])]
)
def test_a_model_that_was_saved_without_its_head_is_quantized_alike(name, kind, tmp_path):
    """As GPT-2 and BLOOM are on the hub, where names of tensors lack their first part."""
    model = create(name, tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "with")
    model.base_model.save_pretrained(tmp_path / "without")
    one, other = (packed_loss(kind, tmp_path / n, tmp_path / f"{n}-4") for n in ("with", "without"))
    assert one == other
