"""Checkpoints as people leave them: shards of an earlier save, weights that are quantized already,
members of a mean that are other models. transformers' own loader is the reference."""

import json
import re
import shutil

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.base.checkpoints import weight_files
from ptq_dynamics.hub import folders
from ptq_dynamics.quantize import storage
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.trajectories.average import write_mean
from ptq_dynamics.trajectories.weights import Weights
from safetensors.torch import load_file, save_file
from support import GPTQ, one_line
from tiny import TEXT, edit, save
from transformers import AutoModelForCausalLM

INDEX = "model.safetensors.index.json"
GRID = {"bits": 4, "group_size": 16}
LAYER = "model.layers.0.mlp.up_proj"


def theirs(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A checkpoint in few shards beside those of an earlier save in more shards; and it alone."""
    root = tmp_path_factory.mktemp("left")
    alone, folder = (
        save(root / "alone", seed=1, size="40KB"),
        save(root / "left", seed=2, size="20KB"),
    )
    shards = [len(list(each.glob("*.safetensors"))) for each in (alone, folder)]
    assert 1 < shards[0] < shards[1]
    shutil.copytree(alone, folder, dirs_exist_ok=True)
    (folder / "model.fp16.safetensors").write_bytes(b"a variant")
    return folder, alone


@pytest.mark.parametrize("single", [False, True])
def test_only_the_files_that_transformers_reads_count(left, tmp_path, single):
    folder, alone = left
    if single:  # A file comes before an index, whose shards are then left over.
        folder, alone = shutil.copytree(alone, tmp_path / "both"), save(tmp_path / "one", seed=4)
        shutil.copy(alone / "model.safetensors", folder)
    assert [path.name for path in weight_files(folder)] == [p.name for p in weight_files(alone)]
    one, other = map(folders.files_of, (folder, alone))
    assert [each.name for each in one] == [each.name for each in other]
    state = theirs(folder).state_dict()
    found = Weights(folder).tensors(state)
    assert all(torch.equal(found[name], value) for name, value in state.items())


def test_quantized_weights_are_those_of_what_transformers_reads(left, tmp_path):
    folder, alone = left
    for source in left:
        made = Gptq(**GPTQ | GRID).quantize(source, TEXT)
        made.save(source, tmp_path / source.name)
    ours, reference = (theirs(tmp_path / each.name).state_dict() for each in left)
    assert all(torch.equal(ours[name], value) for name, value in reference.items())
    before = storage.original(folder, models.load(folder))[LAYER].cpu()
    assert torch.equal(before, theirs(alone).state_dict()[f"{LAYER}.weight"])


BROKEN = [
    ({"weight_map": {"a": "model-00009-of-00009.safetensors"}}, "lacks model-00009-of-00009"),
    ({"weight_map": {"a": "../other/model.safetensors"}}, "not a file beside it by its name"),
    ({"weight_map": {}}, "lacks model.safetensors"),
    ("{", "is no index"),
]


@pytest.mark.parametrize(("index", "words"), BROKEN)
def test_an_index_that_cannot_be_followed_is_one_line(tmp_path, index, words):
    save_file({"a": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / INDEX).write_text(index if isinstance(index, str) else json.dumps(index))
    with one_line(words):
        weight_files(tmp_path)


def test_weights_with_an_adapter_beside_them_are_refused(tmp_path):
    """transformers adds the adapter where peft is installed."""
    edit(save(tmp_path) / "adapter_config.json", peft_type="LORA")
    with one_line("has an adapter (adapter_config.json); merge it"):
        Weights(tmp_path)


# Weights that are quantized already


def int8(**about):
    return {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}} | about


CODES = {
    "bitsandbytes int8": {f"{LAYER}.weight": torch.zeros(64, 32, dtype=torch.int8)},
    "gptq": {f"{LAYER}.qweight": torch.zeros(4, 64, dtype=torch.int32)},
    "fp8": {f"{LAYER}.weight": torch.zeros(64, 32).to(torch.float8_e4m3fn)},
    "mxfp4": {"model.layers.0.mlp.experts.up_blocks": torch.zeros(2, 8, 16, dtype=torch.uint8)},
}
QUANTIZED = [
    ("config.json", int8(), "config.json, method bitsandbytes"),
    ("config.json", {"text_config": int8()}, "config.json, method bitsandbytes"),
    ("quantize_config.json", {"bits": 4}, "quantize_config.json, method GPTQ"),
    *((None, tensors, f"but {min(tensors)} has the type") for tensors in CODES.values()),
]


@pytest.mark.parametrize(("file", "content", "words"), QUANTIZED)
def test_what_is_quantized_already_is_refused_in_one_line(tmp_path, file, content, words):
    folder = save(tmp_path / "model")
    if file is None:
        state = load_file(folder / "model.safetensors")
        state.pop(f"{LAYER}.weight")
        save_file(state | content, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        edit(folder / file, **content)
    with one_line("is quantized already (quantization_config: ", words):
        Weights(folder)


def test_masks_and_positions_are_no_codes(tmp_path):
    """As GPT-2, GPT-NeoX and BERT saved them."""
    folder, mask = save(tmp_path / "model"), torch.ones(1, 1, 8, 8, dtype=torch.uint8)
    state = load_file(folder / "model.safetensors")
    state |= {"h.0.attn.bias": mask, "position_ids": torch.arange(8)[None]}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder / "config.json", quantization_config=None)
    models.load(folder)
    assert Weights(folder).forms()["position_ids"] == ("I64", [1, 8])


# Members of a mean


@pytest.mark.parametrize(
    ("options", "part", "words"),
    [
        ({"rope_theta": 5e5}, "config.json", "differs: rope_parameters.rope_theta"),
        ({"tie_word_embeddings": True}, "config.json", "differs: tie_word_embeddings"),
        ({"output_multiplier": 2.0, "use_cache": False}, "config.json", ": output_multiplier; "),
        ({"dtype": "bfloat16"}, "tensors", "differ in name, type or shape: lm_head.weight"),
    ],
)
def test_members_of_a_mean_that_are_other_models_are_named(tmp_path, options, part, words):
    one, two = save(tmp_path / "1"), save(tmp_path / "2", **options)
    with one_line(f"{part} of {one} and {two} ", words):
        write_mean(tmp_path / "mean", [one, two], [1.0, 1.0])
    assert not (tmp_path / "mean").exists()


def test_what_does_not_change_losses_may_differ(tmp_path):
    one, two = save(tmp_path / "1"), save(tmp_path / "2", seed=1)
    changes = {"transformers_version": "4.40.0", "use_cache": False, "attention_dropout": 0.1}
    edit(one / "config.json", eos_token_id=7, torch_dtype="float32", **changes)
    # As transformers 4 wrote what 5 writes in another place.
    config = json.loads((one / "config.json").read_text())
    del config["rope_parameters"], config["dtype"]
    (one / "config.json").write_text(json.dumps({**config, "rope_theta": 10000.0}))
    edit(two / "generation_config.json", temperature=0.5)
    write_mean(tmp_path / "mean", [one, two], [1.0, 1.0])


# Final models


FINALS = [
    (".", {"global_step": 7}, 7, None),
    (".", {"log_history": [{"loss": 1.0}, {"step": 7.0}, None, {"step": "8"}]}, 7, None),
    ("checkpoint-final", {}, 6, "no file has its step; to measure it, move it to"),
    ("best", {"global_step": 7}, 6, "its name has no step; to measure it, move it to"),
    (".", {"global_step": 6}, 6, "checkpoint-6 has its step, but other weights"),
    ("tmp-checkpoint-9", {"global_step": 9}, 6, "its name is that of an interrupted save"),
    ("tmp-final", {"global_step": 9}, 6, "its name is that of an interrupted save"),
]


@pytest.mark.parametrize(("place", "state", "last", "words"), FINALS)
def test_a_final_model_is_measured_at_its_step_or_named(tmp_path, place, state, last, words):
    for step in (3, 6):
        save(tmp_path / f"checkpoint-{step}", seed=step)
    edit(save(tmp_path / place, seed=7) / "trainer_state.json", **state)
    pattern = re.compile(r"checkpoint-(\d+)$")
    assert [*folders.checkpoints(tmp_path, pattern).values()] == [3, *{6, last}]
    lines = folders.unmeasured(tmp_path, pattern)
    assert len(lines) == bool(words)
    assert all(f"{tmp_path / place} is left out: {words}" in line for line in lines)
