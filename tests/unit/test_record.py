"""Records and manifests of another version, and files that are damaged or missing."""

import datetime
import json
from dataclasses import replace
from pathlib import Path

import pytest
from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.manifest import Manifest, describe, read
from ptq_dynamics.engine.paths import RECORD, beside
from support import one_line

JOB = {"stage": "measure.loss", "name": "a", "libraries": {"numpy": "2"}, "code": {}}


@pytest.fixture
def made(tmp_path):
    output = Manifest(tmp_path / "manifest.json", {}, {"tokens_processed": 12})
    entered = {"corpus": [Manifest(tmp_path / "corpus.json", {}, {})]}
    job = JOB | {"inputs": {"corpus": [str(tmp_path / "corpus.json")]}}
    return record.describe(job, entered, output, None, datetime.datetime.now(datetime.UTC), 1.5)


def test_a_record_of_another_version_is_a_problem(made, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**json.loads(made.text()), "version": 99}))
    with one_line("has version 99, this code reads 4", "; remove "):
        record.read(path)


def test_identity_is_of_what_shapes_the_result(made):
    assert replace(made, seconds=99.0, facts={}).identity == made.identity
    for key, value in (("name", "b"), ("libraries", {"numpy": "3"}), ("code", {"a": "0"})):
        assert replace(made, job={**made.job, key: value}).identity != made.identity
    other = replace(made, inputs=dict.fromkeys(made.inputs, "0" * 64))
    assert other.identity != made.identity


# Manifests


def publish(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    made = describe(folder, folder / "manifest.json", {})
    write_atomically(made.path, made.text())
    return read(made.path)


DAMAGE = {
    "missing": (lambda path: path.unlink(), "is missing"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has 4 bytes instead"),
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
