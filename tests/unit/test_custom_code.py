"""Checkpoints with code of their own, as transformers saves them: when it runs, what it gives."""

import json

import pytest
import torch
from hub import COMMIT
from huggingface_hub import constants, hf_api, hf_hub_download
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import project
from ptq_dynamics.cli.selection import without_defects
from ptq_dynamics.config.families import Own
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.hub import folders, lock
from ptq_dynamics.plan.own_checkpoints import sampled_checkpoints
from ptq_dynamics.quantize.methods import Calibration
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.trajectories import local
from ptq_dynamics.trajectories.fetch import FetchSettings, Revision
from ptq_dynamics.trajectories.fetch import run as fetch
from ptq_dynamics.trajectories.ingredients import require_one_model
from ptq_dynamics.trajectories.weights import Weights
from reference import compare
from safetensors.torch import save_file
from support import GPTQ, one_line
from tiny import edit, linked
from torch import nn
from transformers import AutoModelForCausalLM

CODE = {
    "layers_mine.py": """
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x):
        return x + self.down(self.up(x.cumsum(1)).tanh())
""",
    "modeling_mine.py": """
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from .layers_mine import Block

class MineConfig(PreTrainedConfig):
    model_type = "mine"

class Mine(PreTrainedModel):
    config_class = MineConfig

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config.width) for _ in range(2))
        self.head = nn.Linear(config.width, config.vocab_size)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x)
        return CausalLMOutput(logits=self.head(x))
""",
}
AUTO = {"AutoConfig": "modeling_mine.MineConfig", "AutoModelForCausalLM": "modeling_mine.Mine"}
CONFIG = {"model_type": "mine", "architectures": ["Mine"], "vocab_size": 96, "width": 32}
CONFIG["num_hidden_layers"] = 2


@pytest.fixture
def folder(tmp_path):
    """The run's one checkpoint."""
    (folder := tmp_path / "run/checkpoint-1").mkdir(parents=True)
    for name, code in CODE.items():
        (folder / name).write_text(code)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "auto_map": AUTO}))
    (folder / "tokenizer.json").write_text("{}")
    torch.manual_seed(0)
    up_down = [nn.ModuleDict({"up": nn.Linear(32, 64), "down": nn.Linear(64, 32)}) for _ in "ab"]
    parts = {"embedding": nn.Embedding(96, 32), "blocks": nn.ModuleList(up_down)}
    state = nn.ModuleDict({**parts, "head": nn.Linear(32, 96)}).state_dict()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def own(folder, *, trusts=True):
    return Own(checkpoints={"folder": str(folder.parent)}, trusts_code=trusts)


def refused(folder, words, *, trusts=True):
    with one_line(f"{folder} {words}"):
        entry = own(folder, trusts=trusts)
        without_defects(entry, entry.checkpoints, [])


def test_code_runs_only_where_it_is_trusted_and_complete(folder):
    refused(folder, "needs code of its own for mine; --trust-remote-code", trusts=False)
    entry = own(folder)
    assert without_defects(entry, entry.checkpoints, []) == (entry.checkpoints, [])
    plain = folders.files_of(folder)
    assert not [file for file in plain if file.name.endswith(".py")]
    code, other = folder / "modeling_mine.py", folder / "other.py"
    code.rename(other)
    refused(folder, "lacks modeling_mine.py, which auto_map names")
    other.rename(code)
    for auto, words in (
        ({**AUTO, "AutoModelForCausalLM": "a/b--modeling_mine.Mine"}, "names code of another rep"),
        ({"AutoConfig": AUTO["AutoConfig"]}, "has no AutoModelForCausalLM in the auto_map"),
        ({}, "has the type mine, which transformers "),
    ):
        edit(folder / "config.json", auto_map=auto)
        refused(folder, words)


def test_losses_are_those_of_the_code_and_weights_are_rounded(folder, tmp_path):
    place = linked(folder, tmp_path / "out", has_code=True)
    tokens = torch.randint(96, (64, 17))
    theirs = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    with torch.no_grad():
        logits = theirs(tokens[:, :-1]).logits
    expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    losses = models.block_losses(models.load(place, torch.float32), tokens, 64)
    assert float(losses.mean()) == pytest.approx(float(expected), abs=1e-6)
    calibration = Calibration(tokens, 16)
    grid = {"bits": 8, "group_size": 32}
    for method in (Rtn(method="rtn", **grid), Gptq(**GPTQ | grid)):
        method.quantize(place, calibration).save(place, target := tmp_path / method.method)
        quantized = models.load(target).state_dict()
        for name, weight in theirs.state_dict().items():
            step = 2 * weight.abs().max() / 255 if name.startswith("blocks") else 0
            assert (quantized[name] - weight).abs().max() <= 2 * step
        close = models.block_losses(models.load(target), tokens, 64)
        assert 0 < abs(float((close - losses).mean())) < 0.01
    # Block by block, although the code does not name its blocks; no block may run twice.
    codes = Gptq(**GPTQ | {"bits": 4, "group_size": 16}).quantize(place, calibration)
    assert not any(compare(place, calibration, codes.weights, bits=4, group=16).values())
    awq = Awq(method="awq", bits=4, group_size=32, symmetric=True, duo_scaling=True, grid_points=4)
    with one_line("AWQ has no mapping for mine, and would only round"):
        awq.quantize(place, calibration)
    called = CODE["modeling_mine.py"].replace("x = block(x)", "x = block.forward(x)")
    (folder / "modeling_mine.py").write_text(called)
    folder = folder.rename(folder.with_name("called"))
    with one_line("this mine calls no modules of Block; use rtn"):
        Gptq(**GPTQ | grid).quantize(folder, calibration)
    twice = CODE["modeling_mine.py"].replace("in self.blocks:", "in [*self.blocks, *self.blocks]:")
    (folder / "modeling_mine.py").write_text(twice)
    again = folder.rename(folder.with_name("twice"))
    with one_line("blocks.0 of this mine runs 2 times in a pass, and would be rounded 2 times"):
        Gptq(**GPTQ | grid).quantize(again, calibration)


def test_code_is_part_of_a_checkpoint(folder, tmp_path):
    """Another code makes other results, and no mean with the first."""
    first, files = linked(folder, tmp_path / "one", has_code=True), folders.files_of
    before = files(folder, has_code=True)
    first_code = CODE["layers_mine.py"]
    (first / "layers_mine.py").unlink()  # a link
    (first / "layers_mine.py").write_text(first_code)
    (folder / "layers_mine.py").write_text(first_code.replace("tanh", "sinh"))
    assert files(folder, has_code=True) != before and files(folder)
    second = linked(folder, tmp_path / "other", has_code=True)
    with pytest.raises(Problem, match=r"code of .* differs: layers_mine.py"):
        require_one_model(Weights(first), Weights(second))
    # transformers keeps the classes of a folder that a process has loaded, by its last name.
    (other := folder.rename(tmp_path / "other-1") / "layers_mine.py").write_text("import nowhere")
    with one_line("other-1 holds no readable checkpoint", "No module named 'nowhere'"):
        models.load(other.parent)


def test_code_of_the_hub_needs_a_commit(folder, tmp_path, hub, monkeypatch):
    for name in ("hub/people", "config"):
        (tmp_path / name).mkdir(parents=True)
    folder.rename(tmp_path / "hub/people/mine")
    with one_line("--trust-remote-code needs a folder, or a commit of people/mine"):
        project.checkpoints(tmp_path, "run", "people/mine", "main", None, (), trusts_code=True)
    hub.branches.add("main")
    monkeypatch.setattr(hf_api.api, "endpoint", hub.url)
    with one_line("people/mine@main needs code of its own for mine; --trust-remote-code"):
        project.checkpoints(tmp_path, "run", "people/mine", "main", None, (), trusts_code=False)
    place = tmp_path, "run", "people/mine", COMMIT, None, ()
    entry = Own(**project.checkpoints(*place, trusts_code=True))
    assert sampled_checkpoints(entry) == [(COMMIT, None)]
    locked = lock.read_lock(tmp_path / "config" / project.LOCK)["people/mine"][COMMIT]
    assert {*CODE} < {file.name for file in locked.files}
    point = local.trajectory.Checkpoint(COMMIT, None, None, None, "checkpoint")
    revision = Revision(checkpoint=point, commit=COMMIT, files=locked.files)
    settings = FetchSettings(repository="people/mine", revisions=(revision,), parameters=1)
    (out := tmp_path / "out").mkdir()
    fetch(Context("fetch", settings, {}, out, out, Progress("fetch")))
    assert models.load(out / COMMIT).config.model_type == "mine"
    for file in locked.files:
        hf_hub_download("people/mine", file.name, revision=COMMIT, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert Own(**project.checkpoints(*place, trusts_code=True)).model == entry.model
    # What the project has recorded of this repository counts then, and of no other.
    recorded = {"repository": "people/mine", "revisions": ["step-1", "step-2"]}
    written = {"own": {"run": {"checkpoints": recorded, "model": {"name": "mine"}}}}
    (tmp_path / "config/families.yaml").write_text(json.dumps(written))
    content = json.loads((locks := tmp_path / "config" / project.LOCK).read_text())
    content["people/mine"] |= dict.fromkeys(recorded["revisions"], content["people/mine"][COMMIT])
    locks.write_text(json.dumps(content))
    place = tmp_path, "run", "people/mine", "step*", None, ["step-1"]
    known = project.checkpoints(*place, trusts_code=False)
    assert known["checkpoints"]["revisions"] == ["step-2"] and known["model"]["name"] == "mine"
    with one_line("people/other has no revision like 'step*'"):
        project.checkpoints(tmp_path, "run", "people/other", "step*", None, (), trusts_code=False)
