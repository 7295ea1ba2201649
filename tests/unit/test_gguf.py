"""Types of GGUF files, and existing files, against the package `gguf` and transformers."""

import gguf
import numpy as np
import pytest
import torch
from ggufs import written
from ptq_dynamics import models
from ptq_dynamics.cli import own_scale
from ptq_dynamics.config import read_yaml
from ptq_dynamics.quantize.methods.gguf import Gguf, GgufFile
from support import ROOT, one_line, plan
from tiny import create, save
from transformers import AutoModelForCausalLM

TYPES = gguf.GGMLQuantizationType
ENTRIES = {
    name: entry
    for name, entry in read_yaml(ROOT / "config/quantizers.yaml").items()
    if entry["method"] == "gguf"
}


@pytest.mark.parametrize("name", ENTRIES)
def test_weights_are_those_that_transformers_reads_in_a_file_of_the_type(name, tmp_path):
    """Of a checkpoint in bfloat16."""
    create("Qwen2").bfloat16().save_pretrained(tmp_path / "model")
    kind = Gguf(**ENTRIES[name])
    source = models.load(tmp_path / "model", torch.float32)
    written(source, tmp_path / "a.gguf", TYPES[kind.type])
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


def test_other_types_and_widths_are_one_line():
    with one_line("only llama.cpp quantizes to q4_k_m"):
        own_scale.quantizers(["q4_k_m"], [])
    model = plan("smoke").site.config.scale.models["kumar-70m"]
    assert "do not divide the layer width 16" in Gguf(**ENTRIES["q4_0"]).refuses(model)


@pytest.mark.parametrize(
    ("model", "kind", "width"),
    [("Llama", "Q5_1", 32), ("Qwen2", "Q8_0", 32), ("Qwen2", "Q4_K", 256)],
)
def test_a_file_has_the_weights_that_gguf_dequantizes(tmp_path, model, kind, width):
    """The package quantizes to no K-quants, so blocks of these have random codes."""
    source = create(model, hidden_size=width, intermediate_size=width)
    random, raw, exact = np.random.default_rng(0), {}, {**source.state_dict()}
    for name, layer in models.linear_layers(source).items():
        weight = f"{name}.weight"
        if kind == "Q4_K":
            blocks = random.integers(0, 256, (len(layer.weight), 144), np.uint8)
            blocks[:, :4] = np.array([1e-3, 1e-3], np.float16).view(np.uint8)  # two scales
            raw[weight] = blocks
        else:
            blocks = gguf.quantize(layer.weight.detach().numpy(), TYPES[kind])
        exact[weight] = torch.from_numpy(gguf.dequantize(blocks, TYPES[kind]))
        if raw:
            layer.weight.data = exact[weight] + 1e-3 * torch.randn_like(exact[weight])
    source.save_pretrained(folder := tmp_path / "model")
    written(source, tmp_path / "a.gguf", TYPES[kind], raw)
    ((name, entry),) = own_scale.quantizers(["a.gguf"], [], str(tmp_path)).items()
    # Of a code alone.
    assert (name, entry["bits"]) == ("a.gguf", int(kind[1]))
    made = GgufFile(**{**entry, "file": str(tmp_path / "a.gguf")}).quantize(folder, None)
    made.save(folder, tmp_path / "saved")
    for name, value in models.load(tmp_path / "saved").state_dict().items():
        torch.testing.assert_close(value, exact[name], rtol=0, atol=1e-6)


def test_files_that_do_not_fit_are_one_line(tmp_path):
    folder, path = save(tmp_path / "mine", "Qwen2"), tmp_path / "a.gguf"
    written(models.load(folder), path, TYPES.Q8_0)
    entry = GgufFile.of(path, str(path))
    for kind, seed in (("Llama", 0), ("Qwen2", 1), ("GPT2", 0)):
        with one_line("a.gguf", "differs from"):
            entry.quantize(save(tmp_path / f"{kind} {seed}", kind, seed), None)
    # Another step of the same run, where norms differ by 1 % or weights by 5 %.
    for part, share in (("norm", 0.01), ("proj", 0.05)):
        for name, parameter in (other := models.load(folder)).named_parameters():
            parameter.data *= 1 + share * torch.randn_like(parameter) * (part in name)
        other.save_pretrained(tmp_path / part)
        with one_line("a.gguf differs from", part):
            entry.quantize(tmp_path / part, None)
    path.write_bytes(path.read_bytes().replace(b"qwen2", b"qwerz"))
    with one_line("a.gguf has changed"):
        entry.quantize(folder, None)
    with one_line("transformers cannot read", "qwerz"):
        GgufFile.of(path, str(path)).quantize(folder, None)
    path.write_bytes(b"GGUF")
    with one_line("a.gguf is no GGUF file"):
        GgufFile.of(path, str(path))
    with one_line("has no b.gguf"):
        own_scale.quantizers(["b.gguf"], [], str(tmp_path))
