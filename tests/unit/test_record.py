"""Records: read back as written, of all the processes of a job."""

import datetime
import hashlib
import json
from dataclasses import replace

import pytest
import torch
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import machine, record
from ptq_dynamics.engine.machine import Git, installed
from ptq_dynamics.engine.manifest import Manifest
from support import ROOT, one_line

JOB = {"stage": "measure.loss", "name": "a", "libraries": {"numpy": "2"}, "code": {}}


@pytest.fixture
def made(tmp_path):
    output = Manifest(tmp_path / "manifest.json", {}, {"tokens_processed": 12})
    entered = {"corpus": [Manifest(tmp_path / "corpus.json", {}, {})]}
    commit = Git("0" * 40, True, ("config/runs.yaml",), "1" * 40)
    job = JOB | {"inputs": {"corpus": [str(tmp_path / "corpus.json")]}}
    return record.describe(job, entered, output, commit, datetime.datetime.now(datetime.UTC), 1.5)


def test_what_is_described_is_read_back(made, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(made.text())
    assert record.read(path) == made
    assert (made.seconds, made.device.kind) == (1.5, "cpu")
    assert made.packages == {"numpy": installed("numpy")} and made.processes == 1
    assert made.manifest(tmp_path / "manifest.json").facts == {"tokens_processed": 12}
    assert made.inputs.keys() == {str(tmp_path / "corpus.json")}
    assert made.notes == ("made by commit 0000000000 with edits in config/runs.yaml",)


def test_records_from_before_capabilities_were_recorded_are_read(tmp_path):
    content = json.loads((ROOT / "figures/reference/own/quantization.record.json").read_text())
    for name in ("capability", "precision", "variables"):
        content["machine"].pop(name, None)
    (tmp_path / "record.json").write_text(sealed(content))
    found = record.read(tmp_path / "record.json")
    assert found.machine.capability is None and found.machine.variables is None


def test_what_decides_last_bits_is_recorded(monkeypatch):
    chosen = {"MKL_CBWR": "COMPATIBLE", "NVIDIA_TF32_OVERRIDE": "1", "MKL_NUM_THREADS": "2"}
    chosen |= {"OPENBLAS_CORETYPE": "Haswell", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    without = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_VERBOSE": "0"}
    for name, value in (chosen | without).items():
        monkeypatch.setenv(name, value)
    found = machine.this()
    assert found.capability == torch.backends.cpu.get_cpu_capability()
    assert found.precision == torch.get_float32_matmul_precision()
    assert chosen.items() <= found.variables.items()
    assert not without.keys() & found.variables.keys()


def sealed(content):
    """A record's text with a digest of itself, made in another way than the engine's."""
    text = json.dumps({**content, "digest": ""}, sort_keys=True, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**content, "digest": digest}, sort_keys=True, indent=1) + "\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["git"].update(dirty=3), "is no record (1 validation error"),
        (lambda content: content.update(version=99), "has version 99, this code reads 4"),
        (lambda content: content.clear(), "is no record ('version')"),
    ],
    ids=["wrong-type", "version", "empty"],
)
def test_what_is_no_record_is_a_problem(made, tmp_path, change, words):
    path = tmp_path / "record.json"
    content = json.loads(made.text()) | {"git": {"commit": "0" * 40, "dirty": True}}
    change(content)
    path.write_text(sealed(content))
    with one_line(words, "; remove "):
        record.read(path)


def test_a_record_holds_a_digest_of_itself(made, tmp_path):
    path = tmp_path / "record.json"
    text = made.text()
    for at, letter in [*enumerate(text)][::9]:
        if letter.isalnum():
            path.write_text(text[:at] + ("1" if letter == "0" else "0") + text[at + 1 :])
            with pytest.raises(Problem):
                record.read(path)
    path.write_text(text.replace("\n", "\n "))
    with pytest.raises(Problem, match="is not as it was written"):
        record.read(path)


def test_identity_is_of_what_shapes_the_result(made):
    assert replace(made, seconds=99.0, facts={}).identity == made.identity
    for key, value in (("name", "b"), ("libraries", {"numpy": "3"}), ("code", {"a": "0"})):
        assert replace(made, job={**made.job, key: value}).identity != made.identity
    other = replace(made, inputs=dict.fromkeys(made.inputs, "0" * 64))
    assert other.identity != made.identity
