"""Every architecture: transformers' own class, trained, quantized, measured and averaged."""

import shutil

import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature.hessian import LossHessian
from ptq_dynamics.measure.loss import block_losses
from ptq_dynamics.measure.names import LAYERS
from ptq_dynamics.models.packed import grids
from ptq_dynamics.quantize import awq, gptq
from ptq_dynamics.quantize.method import Calibration
from ptq_dynamics.train.trajectory import Trajectory
from reference import compare
from safetensors.torch import load_file
from support import QUANTIZERS, Workspace, edit_yaml, plan, tiny_config
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

# Proportions of the real ones: heads that share keys and values, tied or untied heads.
SIZE = {"layers": 2, "width": 64, "heads": 4, "context": 16, "rotary_base": 10000.0}
MODELS = {
    "llama": {"feedforward": 176, "key_value_heads": 4, "tied": False},
    "smollm3": {"feedforward": 336, "key_value_heads": 1, "tied": True, "no_rotary_every": 2},
    "olmo": {"feedforward": 256, "key_value_heads": 4, "tied": True},
    "olmo2": {"feedforward": 336, "key_value_heads": 1, "tied": False},
    "apertus": {"feedforward": 336, "key_value_heads": 1, "tied": False},
    "qwen3": {"feedforward": 176, "key_value_heads": 4, "tied": True},
}
SHAPES = {name: {"architecture": name, **SIZE, **own} for name, own in MODELS.items()}
CLASSES = {"llama": "Llama", "smollm3": "SmolLM3", "olmo": "Olmo", "olmo2": "Olmo2"}
CLASSES |= {"apertus": "Apertus", "qwen3": "Qwen3"}
AWQ = {"method": "awq", "bits": 4, "symmetric": True, "duo_scaling": True, "grid_points": 4}
METHODS = {
    "gptq3": QUANTIZERS["gptq3"],
    "rtn4": {**QUANTIZERS["rtn3"], "bits": 4},
    "awq4": {**AWQ, "group_size": {"at_most": 16}},
    "eight": {"method": "int8", "bits": 8, "threshold": 6.0},
    "nf": {"method": "nf4", "bits": 4, "block_size": 32, "double_quantization": False},
}
TAKES = [(name, method) for name in MODELS for method in METHODS]
TAKES = [(n, m) for n, m in TAKES if m != "awq4" or n not in ("olmo", "olmo2")]


def config_of(folder):
    """The tiny configuration with a run of every architecture, and an average of its end."""
    config = tiny_config(folder)
    run = {"schedule": "constant", "peak_lr": 1e-2, "length": "12/190", "warmup": "3/190"}
    run |= {"checkpoint_every": "2/190", "state_every": "6/190"}
    runs = {f"a-{name}": {**run, "model": name} for name in MODELS}
    means = {
        f"mean-{name}": {"trajectory": f"a-{name}", "every": "2/190", "window": 3}
        for name in MODELS
    }
    edit_yaml(config / "scales/smoke.yaml", lambda found: found["models"].update(SHAPES))
    edit_yaml(config / "runs.yaml", lambda found: found["runs"].update(runs))
    edit_yaml(config / "runs.yaml", lambda found: found["averages"].update(means))
    edit_yaml(config / "quantizers.yaml", lambda found: found.update(METHODS))
    return config


@pytest.fixture(scope="module")
def built(tmp_path_factory, workspace):
    """A workspace of its own, on the corpus that all share."""
    folder = tmp_path_factory.mktemp("architectures")
    made = Workspace(folder, plan("smoke", config_of(folder)))
    shutil.copytree(workspace.folder / "results", folder / "results")
    return made


@pytest.fixture(scope="module")
def trained(built):
    """Manifests of the runs by architecture."""
    train = built.plan.trajectories.train
    return {name: built.make(train(f"a-{name}")) for name in MODELS}


@pytest.fixture(scope="module")
def last(trained):
    """Folders of the runs' last checkpoints."""
    found = {name: Trajectory([result]) for name, result in trained.items()}
    return {name: each.folder(each.checkpoints[-1]) for name, each in found.items()}


@pytest.fixture(scope="module")
def corpus(built):
    return built.manifest(built.plan.corpora.corpus("main"))


@pytest.mark.parametrize("name", MODELS)
def test_a_fresh_model_is_of_transformers_own_class_and_as_large_as_planned(built, name):
    shape = built.plan.site.config.scale.models[name]
    model = shape.create(300, seed=3)
    assert type(model).__name__ == f"{CLASSES[name]}ForCausalLM"
    assert model.config.num_key_value_heads == shape.key_value_heads
    assert {layer.in_features for layer in models.linear_layers(model).values()} == {*shape.widths}
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == shape.tied
    assert sum(each.numel() for each in model.parameters()) == shape.parameters(300)
    again, other = (shape.create(300, seed) for seed in (3, 4))
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    assert any(not torch.equal(v, other.state_dict()[k]) for k, v in model.state_dict().items())


def test_each_has_what_tells_it_apart(built):
    made = {name: built.plan.site.config.scale.models[name].create(300, 0) for name in MODELS}
    named = {name: [key for key, _ in model.named_parameters()] for name, model in made.items()}
    assert made["smollm3"].config.no_rope_layers == [1, 0]
    assert not any("norm" in key for key in named["olmo"])
    for name in ("olmo2", "apertus"):
        assert any("q_norm" in key for key in named[name]), name
    assert any("post_feedforward_layernorm" in key for key in named["olmo2"])
    assert not any("input_layernorm" in key for key in named["olmo2"])
    assert any("alpha_p" in key for key in named["apertus"])
    assert not any("gate_proj" in key for key in named["apertus"])


@pytest.mark.parametrize("name", MODELS)
def test_training_lowers_the_loss_and_checkpoints_are_whole(trained, last, corpus, name):
    curve = pd.read_csv(trained[name].file("curve.csv"))
    assert curve.loss.iloc[-1] < curve.loss.iloc[0] - 0.1
    blocks = tokens.blocks(corpus, "validation", 16, 16)
    ours = block_losses(models.load(last[name]), blocks, 16)
    theirs = AutoModelForCausalLM.from_pretrained(last[name]).eval()
    with torch.no_grad():
        expected = theirs(blocks, labels=blocks).loss
    assert ours.mean() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_gptq_gives_the_codes_of_the_reference(last, corpus, name):
    calibration = Calibration(tokens.blocks(corpus, "calibration", 16, 32), 8)
    settings = gptq.Gptq(3, 16, True, "static", 0.05, 128)
    weights = gptq.quantize(last[name], calibration, settings).weights
    differ = compare(last[name], calibration, weights, 3, 16)
    assert len(differ) == (12 if name == "apertus" else 14)
    assert set(differ.values()) == {0.0}, differ


@pytest.mark.parametrize(("name", "method"), TAKES)
def test_every_method_quantizes_and_what_it_saves_is_measured(built, trained, name, method):
    made = built.plan
    result = built.make(made.quantization.quantize(f"a-{name}", method))
    trajectory = Trajectory([result])
    folder = trajectory.folder(trajectory.checkpoints[-1])
    layers = pd.read_csv(result.file(LAYERS)).groupby("layer").mean(numeric_only=True)
    assert len(layers) == (12 if name == "apertus" else 14)
    assert layers.output_relative.between(0, 0.2).all(), layers.output_relative
    # Packed, so that the file is a fraction of what it was.
    assert method in ("eight", "nf") or len(grids(folder)) == len(layers)
    losses = [
        built.make(made.losses.evaluate(f"a-{name}", quantizer)).file("losses.safetensors")
        for quantizer in ("fp", method)
    ]
    assert all(path.stat().st_size for path in losses)


@pytest.mark.parametrize("name", ["llama", "smollm3", "apertus"])
def test_a_model_with_awqs_scales_is_the_same_but_for_rounding(last, corpus, tmp_path, name):
    """In 8 bits, which round little: what one layer is multiplied by, another one takes back."""
    calibration = Calibration(tokens.blocks(corpus, "calibration", 16, 32), 8)
    settings = awq.Awq(8, 16, symmetric=True, duo_scaling=True, grid_points=8)
    found = awq.quantize(last[name], calibration, settings)
    found.stored.save(last[name], tmp_path / "scaled")
    scaling = load_file(tmp_path / "scaled/scaling.safetensors")
    scaled = [value for key, value in scaling.items() if key.endswith(".columns")]
    assert len(scaled) > 4 and any((value - 1).abs().max() > 0.1 for value in scaled)
    blocks = tokens.blocks(corpus, "validation", 16, 32)
    plain, rounded = (
        block_losses(models.load(folder), blocks, 16)
        for folder in (last[name], tmp_path / "scaled")
    )
    assert abs(plain - rounded).max() < 0.02, abs(plain - rounded).max()
    weights = models.dequantized(last[name])
    for key, value in models.dequantized(tmp_path / "scaled").items():
        gap = (value - weights[key]).norm() / weights[key].norm()
        assert gap < 0.02, (key, gap)


@pytest.mark.parametrize("name", MODELS)
def test_the_hessian_is_the_derivative_of_gradients(last, corpus, name):
    """Of those at two points close by, in float64."""
    model = models.load(last[name], attn_implementation="eager").double()
    probes = tokens.blocks(corpus, "probe", 16, 4)
    hessian = LossHessian(model, probes, 4)
    generator = torch.Generator().manual_seed(2)
    v = torch.randn(hessian.dim, generator=generator, dtype=torch.float64)
    v /= v.norm()
    named = sorted(model.named_parameters())
    parts = v.split([each.numel() for _, each in named])
    step, gradients = 1e-3, []
    for sign in (step, -2 * step):
        for (_, weight), part in zip(named, parts, strict=True):
            weight.data += sign * part.view_as(weight)
        model.zero_grad()
        logits = model(probes[:, :-1]).logits
        cross_entropy(logits.flatten(0, 1), probes[:, 1:].flatten()).backward()
        gradients.append(torch.cat([each.grad.flatten() for _, each in named]))
    for (_, weight), part in zip(named, parts, strict=True):
        weight.data += step * part.view_as(weight)
    expected = (gradients[0] - gradients[1]) / (2 * step)
    gap = (hessian(v) - expected).norm() / expected.norm()
    # Norms compute in float32 in some of them.
    assert gap < 0.02, gap


@pytest.mark.parametrize("name", MODELS)
def test_an_average_is_the_mean_of_weights(built, trained, name):
    mean = Trajectory([built.make(built.plan.trajectories.average(f"mean-{name}"))])
    run = Trajectory([trained[name]])
    folder = mean.folder(mean.checkpoints[-1])
    parts = [models.dequantized(run.folder(each)) for each in run.checkpoints[-3:]]
    for key, value in models.dequantized(folder).items():
        expected = sum(part[key].double() for part in parts) / 3
        assert torch.allclose(value.double(), expected, atol=1e-7), key


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"architecture": "lama"}, "architecture is 'lama': must be one of 'gpt-neox', 'llama',"),
        ({"key_value_heads": 3}, "key_value_heads 3 does not divide heads 4"),
        ({"rotary_fraction": 0.5}, "rotary_fraction: unknown key"),
        ({"heads": 5}, "heads 5 does not divide width 64"),
    ],
)
def test_a_model_that_there_cannot_be_is_one_line(tmp_path, change, expected):
    config = config_of(tmp_path)
    edit_yaml(config / "scales/smoke.yaml", lambda found: found["models"]["llama"].update(change))
    with pytest.raises(Problem) as caught:
        plan("smoke", config)
    assert f"models.llama{'.' if 'is' in expected or ':' in expected else ': '}{expected}" in str(
        caught.value
    )
