"""GPTQModel and AutoGPTQ in their environments, against llm-compressor, at scale smoke."""

import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
import torch
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.models import packed
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.layers import model_errors
from ptq_dynamics.quantize.methods import Calibration
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.quantize.storage import original
from ptq_dynamics.quantize.tool import ForeignGptq
from safetensors.torch import load_file
from support import ROOT, plan
from transformers import AutoConfig, AutoModelForCausalLM

TRAJECTORY = "wsd-3e-3"
PLAN = plan("smoke", seed=201)
STATIC = [f"{tool}-{bits}bit-static" for tool in ("gptqmodel", "autogptq") for bits in (3, 4)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both environments were installed and all backends compared."""
    folder = tmp_path_factory.mktemp("backends")
    command = [str(Path(sys.executable).with_name("snakemake")), "-s", str(ROOT / "Snakefile")]
    command += ["--directory", str(folder), "--config", "scale=smoke", "seed=201", "--"]
    done = subprocess.run([*command, "backends"], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return folder


def quantized(built: Path, quantizer: str) -> manifest.Manifest:
    return manifest.read(
        built / PLAN.measurements.measure(TRAJECTORY, quantizer, "all", 201).manifest
    )


def test_the_backends_agree_on_the_integer_codes_and_differences_are_explained(built: Path):
    codes = pd.read_csv(built / "results/smoke/backends/codes.csv")
    assert set(codes["first"]) | set(codes["second"]) >= {"gptq-4bit", *STATIC}
    worst = codes.sort_values("equal_codes").head(5)
    assert codes["equal_codes"].mean() >= 0.995, f"least equal layers:\n{worst}"
    static = codes["first"].str.endswith("static") | codes["second"].str.endswith("static")
    assert (codes[static]["moved_columns"] == 0).all(), "static groups are in the layer's order"
    beyond = codes[(codes["moved_columns"] == 0) & (codes["largest_difference"] > 2)]
    assert beyond.empty, f"neither rounding nor another order explains:\n{beyond.head()}"
    assert ((codes["equal_codes"] == 1) == (codes["largest_difference"] == 0)).all()
    pairs = codes.groupby(["first", "second"]).size()
    assert len(pairs) == 8 and ("gptqmodel-3bit", "autogptq-3bit") in pairs
    losses = pd.read_csv(built / "results/smoke/backends/models.csv").pivot(
        index="checkpoint_id", columns="quantizer", values="loss"
    )
    for first, second in pairs.index:
        assert (losses[first] - losses[second]).abs().max() < 1e-4, (first, second)
    header = (built / "results/smoke/backends/table.md").read_text().splitlines()[5]
    assert header.split() == ["llm-compressor", "GPTQModel", "AutoGPTQ"]


# Run in GPTQModel's environment: the weights of checkpoints as the tool itself reads them.
READ = """
import os, sys
os.environ |= {"GPTQMODEL_CPU_WORKERS": "2", "GPTQMODEL_DISABLE_PACK_EXT": "1"}
import torch
from gptqmodel import BACKEND, GPTQModel
from safetensors.torch import save_file
settings = {"device": "cpu", "backend": BACKEND.GPTQ_TORCH, "dtype": torch.float16}
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    model = GPTQModel.load(source, **settings).model
    layers = [item for item in model.named_modules() if hasattr(item[1], "qweight")]
    save_file({name: each.dequantize_weight().T.contiguous() for name, each in layers}, target)
"""


def test_the_tool_itself_reads_groups_in_activation_order(built: Path, tmp_path: Path):
    results = [quantized(built, f"gptqmodel-{bits}bit") for bits in (3, 4)]
    folders = [each.subfolder(each.facts["checkpoints"][-1]["id"]) for each in results]
    targets = [tmp_path / f"{number}.safetensors" for number in range(len(folders))]
    python = environment.python(manifest.read(built / "envs/gptqmodel/manifest.json"))
    subprocess.run(
        [str(python), "-c", READ, *map(str, chain(*zip(folders, targets, strict=True)))],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    for folder, target in zip(folders, targets, strict=True):
        assert packed.read_config(folder)["quantization_config"]["quant_method"] == "gptq"
        theirs, ours = load_file(target), packed.grids(folder)
        assert theirs.keys() == ours.keys()
        in_order = [(grid.groups().diff() >= 0).all() for grid in ours.values()]
        assert not all(in_order), "groups are in order"
        for name, grid in ours.items():
            assert torch.equal(theirs[name], grid.weight().half()), (folder, name)


def by_tool(built: Path, tmp_path: Path, tool: str, folders: list[Path], calibration: Calibration):
    """What llm-compressor makes of each checkpoint, with 4 bits and groups of 32 columns; and what
    the tool's script does."""
    grid = {"bits": 4, "group_size": 32, "symmetric": True, "damping": 0.05}
    llm = Gptq(method="gptq", **grid, activation_order="static", block_size=128)
    ours = [llm.quantize(folder, calibration).weights for folder in folders]
    kind: ForeignGptq = PLAN.site.config.quantizers[f"{tool}-4bit"].model_copy(
        update={**grid, "static_groups": True}
    )
    inputs = {"environment": [manifest.read(built / f"envs/{tool}/manifest.json")]}
    context = Context("test", None, inputs, tmp_path, tmp_path, Progress("test"))
    theirs = [dict(each.weights) for each in kind.quantize_all(folders, calibration, context)]
    return zip(ours, theirs, strict=True)


def assert_equal_first(ours, theirs, layers):
    """Of the layers whose inputs no quantized layer comes before."""
    for name in layers:
        (layer,) = (key for key in ours if key.endswith(name))
        gap = (ours[layer] - theirs[layer]).abs().max()
        assert gap < 1e-3 * ours[layer].abs().max(), (layer, gap)


# Of the other families, at widths that GPTQModel takes.
SHAPE = {
    **{"vocab_size": 320, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "max_position_embeddings": 32, "pad_token_id": None},
    **{"bos_token_id": 0, "eos_token_id": 1},
}
OTHERS = {
    "llama": {"num_key_value_heads": 4},
    "smollm3": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "olmo": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "olmo2": {"num_key_value_heads": 1},
    "apertus": {"num_key_value_heads": 1},
}


@pytest.mark.parametrize(("tool", "families"), [("gptqmodel", OTHERS), ("autogptq", ["llama"])])
def test_tools_quantize_the_families_that_they_define(
    built: Path, tmp_path: Path, tool: str, families: list[str]
):
    """On documents of any length, which count without filling."""
    torch.manual_seed(5)
    (tokenizer,) = built.glob("results/smoke/corpus/main/tokenizer")
    trained = sorted(built.glob(f"results/smoke/train/{TRAJECTORY}/**/config.json"))[-1].parent
    table = torch.randint(320, (64, 32))
    for row, sequence in enumerate(table):
        sequence[11 + row % 22 :] = tokens.FILLING
    calibration, folders = Calibration(table, 16), [tmp_path / family for family in families]
    for folder in folders:
        about = AutoConfig.for_model(folder.name, **SHAPE, **OTHERS[folder.name])
        AutoModelForCausalLM.from_config(about).save_pretrained(folder)
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    *made, (ours, theirs) = by_tool(built, tmp_path, tool, [*folders, trained], calibration)
    assert_equal_first(ours, theirs, ("attention.query_key_value", "mlp.dense_h_to_4h"))
    for folder, (ours, theirs) in zip(folders, made, strict=True):
        assert len(theirs) == (12 if folder.name == "apertus" else 14)
        assert_equal_first(ours, theirs, [f"layers.0.self_attn.{part}_proj" for part in "qkv"])
        model = AutoModelForCausalLM.from_pretrained(folder)
        before, batches = original(folder, model), calibration.batches()
        rounded = Rtn(method="rtn", bits=4, group_size=32).quantize(folder, calibration).weights
        errors, others = (model_errors(model, before, each, batches) for each in (theirs, rounded))
        found = {name: (errors[name], others[name]) for name in errors}
        worse = {n: e for n, e in found.items() if e[0]["output_mse"] >= e[1]["output_mse"]}
        assert not worse, (folder.name, worse)


# Run in AutoGPTQ's environment: the logits of checkpoints, as transformers 4 loads them.
LOGITS = """
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
from worker import load_checkpoint
for folder in map(Path, sys.argv[1:]):
    with torch.no_grad():
        logits = load_checkpoint(folder, [folder.name]).forward(torch.arange(32)[None]).logits
    save_file({"logits": logits}, folder / "logits")
"""


def test_the_environment_of_autogptq_loads_models_as_the_main_one_does(built: Path, tmp_path: Path):
    """With rotary settings that are the defaults of neither."""
    rope = {"rope_theta": 500.0, "partial_rotary_factor": 0.5}
    linear = {"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0}
    settings = {"llama": {**OTHERS["llama"], "rope_parameters": linear}}
    settings |= {"gpt_neox": {"rope_parameters": {"rope_type": "default", **rope}}}
    expected = {}
    for kind, own in settings.items():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SHAPE | own))
        for each in model.parameters():
            torch.nn.init.normal_(each, std=0.2)
        model.save_pretrained(tmp_path / kind)
        with torch.no_grad():
            expected[kind] = model.eval()(torch.arange(32)[None]).logits
    python = environment.python(manifest.read(built / "envs/autogptq/manifest.json"))
    foreign = ROOT / "workflow/ptq_dynamics/quantize/foreign"
    command = [str(python), "-c", LOGITS, *(str(tmp_path / kind) for kind in settings)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(foreign)}, check=True)
    for kind, logits in expected.items():
        theirs = load_file(tmp_path / kind / "logits")["logits"]
        assert (theirs - logits).abs().max() < 1e-3 * logits.abs().max(), kind
