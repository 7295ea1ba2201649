"""Checkpoints of a hub on this machine: the bytes that are there, whatever breaks, and what becomes
of them."""

import copy
import json
import shutil

import pytest
import torch
from hub import COMMIT
from huggingface_hub import constants, hf_hub_download
from ptq_dynamics import models
from ptq_dynamics.engine.job import Job
from ptq_dynamics.hub import lock
from ptq_dynamics.trajectories.fetch import FetchSettings, Revision
from ptq_dynamics.trajectories.trajectory import Checkpoint, Trajectory
from safetensors.torch import load_file
from support import Workspace, artifacts, differing
from tiny import create, edit
from transformers import AutoTokenizer

pytestmark = pytest.mark.slow

NAME, BRANCH = "people/family", "step-100"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
# What repositories have besides, and nobody asks for.
OTHERS = {
    "README.md": "# A family",
    "modeling_family.py": "raise SystemExit",
    "consolidated.safetensors": "other",
    "model-00001-of-00003.safetensors": "left over",
    "optimizer.bin": "state",
    "pytorch_model.bin": "pickle",
}


@pytest.fixture(scope="module")
def saved(model, corpus, tmp_path_factory):
    """The model in two shards of bfloat16, and its tokenizer."""
    folder = tmp_path_factory.mktemp("saved")
    copy.deepcopy(model).bfloat16().save_pretrained(folder, max_shard_size="45KB")
    shutil.copytree(corpus.subfolder("tokenizer"), folder, dirs_exist_ok=True)
    assert {path.name for path in folder.glob("*.safetensors")} == {ONE, TWO}
    return folder


@pytest.fixture
def hub(hub, saved):
    """A hub that has the model among other files."""
    folder = shutil.copytree(saved, hub.root / NAME)
    for name, text in OTHERS.items():
        (folder / name).write_text(text)
    hub.branches.add(BRANCH)
    return hub


def revision(**changes):
    """The revision as the hub has it now."""
    entry = lock.pinned(lock.Wanted(NAME, BRANCH))
    checkpoint = Checkpoint(BRANCH, 100, 6400, None, "stable")
    known = {"commit": entry.commit, "files": entry.files, "checkpoint": checkpoint, **changes}
    return Revision(**known)


def job(found, **changes):
    settings = FetchSettings(repository=NAME, revisions=(found,), parameters=1, **changes)
    return Job("trajectories.fetch", f"{NAME} step-100", "results/fetch", {}, settings)


def build(folder, job):
    """The manifest of a job that must succeed."""
    return Workspace(folder, None).build(job)


def refused(folder, job, capsys):
    """The line of a job that must fail."""
    capsys.readouterr()
    assert Workspace(folder, None).attempt(job) == 1
    assert not (folder / job.manifest).exists()
    return capsys.readouterr().err.splitlines()[-1]


@torch.no_grad()
def logits(model):
    return model(torch.arange(16)[None]).logits


def same(folder, model):
    """Whether a checkpoint is the model, as full precision is evaluated."""
    return torch.equal(logits(models.load(folder, torch.float32)), logits(model))


def test_a_revision_becomes_a_checkpoint_and_nothing_else_is_asked_for(hub, saved, model, tmp_path):
    found = build(tmp_path, job(revision()))
    folder = found.subfolder("step-100")
    assert not differing(artifacts(saved), artifacts(folder))
    assert set(hub.asked) == {path.name for path in saved.iterdir()}
    assert same(folder, model)
    trajectory = Trajectory([found])
    (checkpoint,) = trajectory.checkpoints
    assert (checkpoint.id, checkpoint.step, checkpoint.tokens) == ("step-100", 100, 6400)
    assert (checkpoint.lr, checkpoint.phase, trajectory.fact("seed")) == (None, "stable", None)
    assert trajectory.fact("commits") == {"step-100": COMMIT}


def test_quantized_checkpoints_are_refused_before_their_weights_are_downloaded(
    hub, tmp_path, capsys
):
    edit(hub.root / NAME / "config.json", quantization_config={"quant_method": "fp8"})
    line = refused(tmp_path, job(revision()), capsys)
    words = "is quantized already (quantization_config: config.json, method fp8)"
    assert f"{NAME}@{BRANCH} {words}" in line and not hub.asked[ONE]


@pytest.mark.parametrize("gone", [TWO, INDEX])
def test_a_checkpoint_that_is_not_whole_is_refused(hub, tmp_path, gone, capsys):
    found = revision()
    found = revision(files=tuple(file for file in found.files if file.name != gone))
    line = refused(tmp_path, job(found), capsys)
    assert f"{NAME}@{BRANCH} has no {gone}" in line and "leave it out" in line


@pytest.mark.parametrize("name", [TWO, "config.json"])
def test_wrong_bytes_are_refused(hub, tmp_path, name, capsys):
    found = revision()
    content = (path := hub.root / NAME / name).read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    line = refused(tmp_path, job(found), capsys)
    assert f"{NAME}@{BRANCH}: the downloaded {name} differs from its digest" in line


def test_without_a_network_what_is_in_the_cache_is_linked(hub, saved, tmp_path, monkeypatch):
    found = job(revision())
    for file in found.settings.revisions[0].files:
        if not file.name.startswith("model-00001-of-00003"):
            hf_hub_download(NAME, file.name, revision=COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = build(tmp_path, found).folder / "step-100"
    assert not differing(artifacts(saved), artifacts(folder))
    blobs = {path.stat().st_ino for path in (tmp_path / "cache").rglob("blobs/*")}
    assert {path.stat().st_ino for path in folder.iterdir()} <= blobs


def test_a_failed_job_keeps_the_files_that_are_whole(hub, saved, tmp_path, capsys):
    found = job(revision())
    hub.missing.add(TWO)
    refused(tmp_path, found, capsys)
    hub.missing.clear()
    before = hub.asked.copy()
    assert not differing(artifacts(saved), artifacts(build(tmp_path, found).subfolder("step-100")))
    assert hub.asked - before == {TWO: 1}


@pytest.fixture
def pickled(hub, saved):
    """The same weights on the hub as they were saved before safetensors."""
    folder = hub.root / NAME
    names = {}
    for number, name in enumerate((ONE, TWO), start=1):
        state = load_file(saved / name)
        file = f"pytorch_model-{number:05d}-of-00002.bin"
        # The older format of torch, and the newer one.
        torch.save(state, folder / file, _use_new_zipfile_serialization=number == 1)
        names |= dict.fromkeys(state, file)
    index = {"metadata": {"total_size": 1}, "weight_map": names}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    for path in [*folder.glob("model*.safetensors*"), folder / "pytorch_model.bin"]:
        path.unlink()
    return folder


def test_pickles_are_refused_unless_the_family_says_convert(pickled, hub, tmp_path, capsys):
    line = refused(tmp_path, job(revision()), capsys)
    assert f"{NAME}@{BRANCH} has its weights as pickles only" in line
    assert "set convert: true" in line
    assert not hub.asked


def test_pickles_are_converted_to_the_bit_one_at_a_time(pickled, hub, model, tmp_path, capsys):
    found = job(revision(), convert=True)
    hub.missing.add("pytorch_model-00002-of-00002.bin")
    refused(tmp_path, found, capsys)
    assert not list((tmp_path / "results").rglob("*.bin"))
    hub.missing.clear()
    folder = build(tmp_path, found).folder / "step-100"
    assert {path.name for path in folder.glob("model*")} == {ONE, TWO, INDEX}
    state = {name: value for path in (ONE, TWO) for name, value in load_file(folder / path).items()}
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert same(folder, model)
    assert hub.asked["pytorch_model-00001-of-00002.bin"] == 1


class Harmful:
    """A pickle of it makes a file where it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("content", ["code", "damage"])
def test_a_pickle_of_more_than_tensors_is_refused(pickled, tmp_path, content, capsys):
    path, trap = pickled / "pytorch_model-00001-of-00002.bin", tmp_path / "trap"
    if content == "code":
        torch.save({"weight": Harmful(str(trap))}, path)
    else:
        path.write_bytes(path.read_bytes()[:1000])
    line = refused(tmp_path, job(revision(), convert=True), capsys)
    assert path.name in line and "leave the revision out of the family" in line
    assert not trap.exists()


# What is read of that in allenai/OLMo-7B; the second half of `ff_proj` is the gate.
OLMO = {
    **{"model_type": "hf_olmo", "d_model": 32, "n_layers": 2, "n_heads": 4, "clip_qkv": None},
    **{"mlp_hidden_size": None, "mlp_ratio": 4, "max_sequence_length": 64, "rope": True},
    **{"vocab_size": 300, "embedding_size": 304, "weight_tying": True},
}
TOGETHER = {
    "att_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attn_out": ["self_attn.o_proj"],
    "ff_proj": ["mlp.up_proj", "mlp.gate_proj"],
    "ff_out": ["mlp.down_proj"],
}


@pytest.fixture
def olmo(hub):
    """A hub for a model in OLMo's own format."""
    folder = hub.root / NAME
    for path in [*folder.glob("model*.safetensors*"), folder / "pytorch_model.bin"]:
        path.unlink()
    (folder / "config.json").write_text(json.dumps(OLMO))
    own = {"auto_map": {"AutoTokenizer": [None, "own.Own"]}, "tokenizer_class": "Own"}
    edit(folder / "tokenizer_config.json", **own)
    return folder


def test_olmos_own_format_becomes_that_of_transformers(olmo, saved, tmp_path):
    shape = {"vocab_size": 304, "num_key_value_heads": 4, "tie_word_embeddings": True}
    model = create("Olmo", **shape)
    state = model.state_dict()
    weights = {"model.transformer.wte.weight": state["model.embed_tokens.weight"]}
    for block in (0, 1):
        for name, parts in TOGETHER.items():
            joined = torch.cat([state[f"model.layers.{block}.{part}.weight"] for part in parts])
            weights[f"model.transformer.blocks.{block}.{name}.weight"] = joined
    torch.save(weights, olmo / "pytorch_model.bin")
    found = build(tmp_path, job(revision(), format="olmo", convert=True))
    assert same(found.subfolder("step-100"), model)
    tokenizers = (
        AutoTokenizer.from_pretrained(each) for each in (saved, found.subfolder("step-100"))
    )
    assert len({tuple(each.encode("some text")) for each in tokenizers}) == 1
