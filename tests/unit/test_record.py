"""Records and manifests: read back as written, and every way in which files can be damaged."""

import datetime
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import machine, record
from ptq_dynamics.engine.machine import Git, installed
from ptq_dynamics.engine.manifest import Manifest, describe, read
from ptq_dynamics.engine.paths import RECORD, beside
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


# Manifests


def publish(folder, files, found_facts=None):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    made = describe(folder, folder / "manifest.json", found_facts or {})
    write_atomically(made.path, made.text())
    return read(made.path)


def test_a_manifest_is_read_back_without_hidden_files(tmp_path):
    (tmp_path / ".scratch").mkdir()
    for name in (".scratch/x", ".log"):
        (tmp_path / name).write_bytes(b"x")
    files, facts = {"a.bin": b"1", "sub/b.bin": b"2"}, {"ü": [0.1, None, {"n": 10**20}]}
    found = publish(tmp_path, files, facts)
    assert found.facts == facts and found.digest() == sha256(found.path)
    assert {name: found.file(name).read_bytes() for name in found.files} == files


DAMAGE = {
    "missing": (lambda path: path.unlink(), "is missing"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has 4 bytes instead"),
    "longer": (lambda path: path.write_bytes(b"abcdef"), "has 6 bytes instead"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "has "),
    "altered": (lambda path: path.write_bytes(b"abcdX"), "has other bytes"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", ["a.bin", "sub/b.bin"])
def test_a_damaged_file_is_a_problem_that_names_it_and_the_remedy(tmp_path, kind, name):
    found = publish(tmp_path, {"a.bin": b"abcde", "sub/b.bin": b"abcde"})
    harm, words = DAMAGE[kind]
    harm(tmp_path / name)
    ask = found.file if name == "a.bin" else found.subfolder
    with one_line(f"{tmp_path / name} {words}", "; build with DEEP=1 to make it again"):
        ask(name.split("/")[0])
    assert found.harm(deep=True) is not None
    assert (found.harm() is None) == (kind == "altered")


@pytest.mark.parametrize(("text", "words"), [("", ""), ('{"files": {}}', " ('facts')")])
def test_what_is_no_manifest_is_a_problem(tmp_path, text, words):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with one_line(f"is no manifest{words}", f"remove {path}"):
        read(path)


def test_the_hint_for_a_missing_manifest_names_its_scale():
    path = "figures/no-such-scale/fig04.manifest.json"
    for reader in (read, lambda place: record.read(beside(place, RECORD))):
        with pytest.raises(Problem, match=f"snakemake {path} --config scale=no-such-scale$"):
            reader(Path(path))


@pytest.mark.parametrize("name", ["/etc/passwd", "b/../../a.txt"])
def test_no_manifest_lists_files_elsewhere(tmp_path, name):
    path = tmp_path / "manifest.json"
    entry = {"size": 1, "sha256": "0" * 64}
    path.write_text(Manifest(path, {name: entry}, {}).text())
    with pytest.raises(Problem, match="lies outside of its folder"):
        read(path)


def test_what_was_dropped_is_no_harm_until_the_result_is_made_anew(tmp_path):
    found = publish(tmp_path, {"a.bin": b"1", "b.bin": b"2"})
    (tmp_path / "c.bin").write_bytes(b"3")
    found.drop(["a.bin", "c.bin"])
    assert read(found.path).dropped() == {"a.bin"} and found.harm(deep=True) is None
    assert (tmp_path / "c.bin").exists(), "it is no file of the result"
    (tmp_path / "a.bin").write_bytes(b"12")
    assert "has 2 bytes" in found.harm(), "what is there has to be right"
    (tmp_path / "a.bin").write_bytes(b"1")
    other = publish(tmp_path, {"a.bin": b"4"})
    assert other.dropped() == set()


def test_a_manifest_that_snakemake_has_removed_is_read_from_the_record(tmp_path):
    found = publish(tmp_path, {"a.bin": b"1"}, {"steps": 3})
    found.path.rename(tmp_path / "record.json")
    assert read(found.path) == found
