"""Folders as other programs leave them, each in its real layout: what is named, what is read."""

import json
import re
import shutil
import subprocess
import warnings

import pytest
import tiny
import torch
import torch.distributed.checkpoint as dcp
import transformers
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli.selection import without_defects
from ptq_dynamics.config.families import Own
from ptq_dynamics.hub import formats
from ptq_dynamics.plan.own_checkpoints import sampled_checkpoints
from safetensors.torch import load_file, save_file
from support import one_line
from tiny import SHAPE, create, edit, linked
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers.models.auto import modeling_auto as auto

BY_TRAINER = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")
WORDS = Tokenizer(WordLevel({"a": 0, "b": 1}, "a"))
SAFE, INDEX = "model.safetensors", "model.safetensors.index.json"


def save(folder, seed=0, **options):
    tiny.save(folder, seed=seed, **options)
    WORDS.save(str(folder / "tokenizer.json"))
    files(*BY_TRAINER)(folder)
    return folder


def run(folder, *steps):
    for step in steps:
        save(folder / f"checkpoint-{step}", step)
    return folder


def measured(folder, known=(), **options):
    """Names of the folders that are measured, and the lines on others."""
    entry = Own(checkpoints={"folder": str(folder), **options})
    source, lines = without_defects(entry, entry.checkpoints, known)
    return [path.name for path, _ in sampled_checkpoints(Own(checkpoints=source))], lines


def distributed(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": create().state_dict()}, checkpoint_id=folder)


def files(*names):
    def write(folder):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            torch.save({}, folder / name)

    return write


def fsdp(folder):
    distributed(folder / "pytorch_model_fsdp_0")


def olmo_core(folder):
    distributed(folder / "model_and_optim")
    (folder / "config.json").write_text('{"model": {"d_model": 16}, "dataset": {}}')


ZERO = "{}bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
OTHERS = {
    "torchtitan": ("step-10", distributed, "checkpoint_conversion/convert_to_hf.py '{}' "),
    "olmo-core": ("step10", olmo_core, "convert_checkpoint_to_hf.py -i '{}' -o "),
    "fsdp": ("checkpoint-10", fsdp, "merge-weights '{}/pytorch_model_fsdp_0' '{}'"),
    "zero": (
        "checkpoint-10",
        files("latest", "zero_to_fp32.py", ZERO.format("global_step10/")),
        "deepspeed.utils.zero_to_fp32 '{}' '{}' --safe_serialization",
    ),
    "megatron": ("iter_0000010", files("mp_rank_00/model_optim_rng.pt"), "of Megatron-LM"),
    "pickle": ("checkpoint-10", files("pytorch_model.bin"), ".save_pretrained('{}')"),
    "nanogpt": ("", files("ckpt.pt"), "nanoGPT or plainLM; copy its weights"),
    "lora": (
        "checkpoint-10",
        files("adapter_config.json", "adapter_model.safetensors"),
        "from_pretrained('{}').merge_and_unload()",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_format_of_another_program_is_named_with_its_conversion(tmp_path, name):
    step, write, words = OTHERS[name]
    (folder := tmp_path / "run" / step).mkdir(parents=True)
    files(*BY_TRAINER)(folder)
    write(folder)
    for configured in (False, True):
        if configured:
            create().config.save_pretrained(folder)
        with one_line(f"{folder} has ", words.format(*[folder] * words.count("{}"))):
            measured(tmp_path / "run")
    if step:
        found, (line,) = measured(run(tmp_path / "run", 5, 6))
        assert found == ["checkpoint-5", "checkpoint-6"]
        assert line.startswith(f"{folder} is left out: it has ")


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(), ("app", "model")])
def test_the_command_for_distributed_weights_gives_a_checkpoint(tmp_path, keys):
    """State dicts of training are flat or nested, with those of optimizers beside."""
    folder, model = tmp_path / "run/step-10", create()
    state = model.state_dict()
    for key in reversed(keys):
        state = {key: state}
    (inner := folder / "model" if keys else folder).mkdir(parents=True)
    dcp.save({**state, "optim": {"lm_head.weight": torch.zeros(1)}}, checkpoint_id=inner)
    with pytest.raises(Problem, match=r"checkpoint of torch\.distributed") as caught:
        measured(tmp_path / "run")
    create(dtype="bfloat16").config.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    command = str(caught.value).rpartition(", then ")[2]
    done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert measured(tmp_path / "run") == (["step-10"], [])
    saved = models.load(folder, torch.float32).state_dict()
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())


T5 = {"d_model": 16, "d_ff": 32, "num_layers": 1, "d_kv": 8, "num_heads": 2}
KINDS = {
    "T5ForConditionalGeneration": ("T5", T5, "holds an encoder and a decoder (t5)"),
    "BertForMaskedLM": ("Bert", SHAPE, "holds a BertForMaskedLM"),
    "BertModel": ("Bert", SHAPE, "holds an encoder (bert)"),
    "LlamaForSequenceClassification": ("Llama", SHAPE, "holds a LlamaForSequenceClassification"),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_does_not_predict_the_next_token_is_refused(tmp_path, name):
    kind, shape, words = KINDS[name]
    config = getattr(transformers, f"{kind}Config")(**shape)
    getattr(transformers, name)(config).save_pretrained(folder := tmp_path / "checkpoint-1")
    with one_line(f"{folder} {words}"):
        measured(tmp_path)


def test_a_model_of_transformers_is_read_without_its_own_code(tmp_path):
    auto = {"AutoModelForCausalLM": "modeling_mine.Mine"}
    edit(save(tmp_path / "checkpoint-1") / "config.json", auto_map=auto)
    assert measured(tmp_path) == (["checkpoint-1"], [])


def test_types_that_see_both_sides_are_those_of_transformers():
    kinds = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM")
    causal, masked, pairs = (getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES") for kind in kinds)
    # Those with an encoder and a decoder say so in config.json.
    assert causal.keys() & masked.keys() - pairs.keys() == formats.BIDIRECTIONAL
    flat = [n for name in causal.values() for n in ((name,) if isinstance(name, str) else name)]
    assert [name for name in flat if not formats.CAUSAL.search(name)] == []


# Members of a run


def cut(folder):
    path = folder / SAFE
    path.write_bytes(path.read_bytes()[:-1])


def not_a_number(folder):
    state = load_file(folder / SAFE)
    state["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(state, folder / SAFE, metadata={"format": "pt"})


def without_a_shard(folder):
    shutil.rmtree(folder)
    save(folder, size="20KB")
    max(folder.glob("model-*.safetensors")).unlink()


def of_another_model(folder):
    save(folder, num_hidden_layers=1)


def of_another_tokenizer(folder):
    Tokenizer(WordLevel({"a": 1, "b": 0}, "a")).save(str(folder / "tokenizer.json"))


def padded(folder):
    tokenizer = Tokenizer.from_str(WORDS.to_str())
    tokenizer.enable_padding(direction="left", length=8)
    tokenizer.save(str(folder / "tokenizer.json"))


DEFECTS = {
    "cut off": (cut, "cannot be read"),
    "not finite": (not_a_number, "values that are not finite, in model.layers.1.mlp.up_proj.weig"),
    "a shard less": (without_a_shard, "lacks model-0"),
    "half a configuration": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "lla'),
        "is not a JSON object",
    ),
    "foreign": (of_another_model, "holds another model than checkpoint-1"),
    "half a tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{"),
        "has another tokenizer than checkpoint-1",
    ),
    "tokens in another file": (
        lambda folder: (folder / "tokenizer.json").rename(folder / "vocab.json").write_text("{}"),
        "has another tokenizer than checkpoint-1",
    ),
    "foreign tokens": (of_another_tokenizer, "has another tokenizer than checkpoint-1"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defective_member_is_left_out_until_it_is_whole(tmp_path, name):
    harm, words = DEFECTS[name]
    folder = run(tmp_path / "run", 1, 2, 3) / "checkpoint-3"
    every = [f"checkpoint-{number}" for number in (1, 2, 3)]
    harm(folder)
    found, (line,) = measured(tmp_path / "run")
    assert found == [other for other in every if other != folder.name]
    assert line.startswith(f"{folder} is left out: ") and words in line and "\n" not in line
    shutil.rmtree(folder)
    save(folder, 3)
    assert measured(tmp_path / "run") == (every, [])


def test_where_two_models_or_tokenizers_are_as_frequent_none_is_taken_for_foreign(tmp_path):
    padded(run(tmp_path, 1, 2) / "checkpoint-1")
    assert measured(tmp_path) == (["checkpoint-1", "checkpoint-2"], [])
    of_another_tokenizer(tmp_path / "checkpoint-2")
    with one_line("checkpoint-1 and checkpoint-2 have different tokenizers"):
        measured(tmp_path)
    of_another_model(tmp_path / "checkpoint-2")
    assert measured(tmp_path) == (["checkpoint-1", "checkpoint-2"], [])


@pytest.mark.parametrize(("prefix", "size"), [("module._orig_mod.", "20KB"), ("inside", "1GB")])
def test_prefixes_of_wrappers_are_no_part_of_names(tmp_path, prefix, size):
    plain = save(tmp_path / "plain", size=size)
    folder = tmp_path / "run/checkpoint-1"
    shutil.copytree(plain, folder)

    def wrapped(name):
        if prefix != "inside":
            return prefix + name
        return re.sub(r"(layers\.\d+\.)", r"\1_orig_mod._checkpoint_wrapped_module.", name)

    for path in folder.glob("*.safetensors"):
        state = {wrapped(name): value for name, value in load_file(path).items()}
        save_file(state, path, metadata={"format": "pt"})
    if (index := folder / INDEX).exists():
        places = json.loads(index.read_text())["weight_map"].items()
        edit(index, weight_map={wrapped(name): place for name, place in places})
    assert measured(tmp_path / "run")[0] == ["checkpoint-1"]
    places = (linked(folder, tmp_path / "out"), plain)
    ours, theirs = (models.load(each).state_dict() for each in places)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
