"""Records: read back as written, of all the processes of a job."""

import base64
import datetime
import hashlib
import json
from dataclasses import replace
from importlib import metadata

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.current import account_of
from ptq_dynamics.engine.fingerprint.code import over
from ptq_dynamics.engine.fingerprint.versions import wheel
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.repository import Git
from support import python

JOB = {"stage": "measure.loss", "name": "a", "environment": {"numpy": "2"}, "code": over({})}


@pytest.fixture
def made(tmp_path):
    output = Manifest(tmp_path / "manifest.json", {}, {"tokens_processed": 12})
    entered = {"corpus": [Manifest(tmp_path / "corpus.json", {}, {})]}
    commit = Git("0" * 40, True)
    job = JOB | {"inputs": {"corpus": [str(tmp_path / "corpus.json")]}}
    return record.describe(job, entered, output, commit, datetime.datetime.now(datetime.UTC), 1.5)


def test_what_is_described_is_read_back(made, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(made.text())
    assert record.read(path) == made
    assert (made.tokens, made.seconds, made.device.kind) == (12, 1.5, "cpu")
    assert made.wheels == {"numpy": wheel("numpy")}
    assert made.inputs.keys() == {str(tmp_path / "corpus.json")}


def without_machine(content):
    del content["machine"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_machine, "is no record (machine: Field required)"),
        (lambda content: content.update(seconds="long"), "is no record (seconds: "),
        (lambda content: content["git"].update(dirty=3), "is no record (git.dirty: "),
        (lambda content: content.update(version=99), "has version 99, this code reads 3"),
        (lambda content: content.clear(), "is no record ('version')"),
    ],
    ids=["missing-key", "wrong-type", "nested", "version", "empty"],
)
def test_what_is_no_record_is_a_problem(made, tmp_path, change, words):
    path = tmp_path / "record.json"
    content = json.loads(made.text()) | {"git": {"commit": "0" * 40, "dirty": True}}
    change(content)
    path.write_text(record.sealed(content))
    with pytest.raises(Problem) as caught:
        record.read(path)
    assert words in str(caught.value) and f"remove {path}" in str(caught.value)


def test_a_record_holds_a_digest_of_itself(made, tmp_path):
    path = tmp_path / "record.json"
    text = made.text()
    for at, letter in enumerate(text):
        if letter.isalnum():
            path.write_text(text[:at] + ("1" if letter == "0" else "0") + text[at + 1 :])
            with pytest.raises(Problem):
                record.read(path)
    path.write_text(text.replace("\n", "\n "))
    with pytest.raises(Problem, match="is not as it was written"):
        record.read(path)


def test_a_record_that_lists_its_code_is_read_as_one_that_names_it(made, tmp_path):
    path, listed = tmp_path / "record.json", {"": "1" * 32, "run": "2" * 8}
    content = json.loads(made.text())
    content |= {"version": 2, "job": {**content["job"], "code": listed}}
    path.write_text(record.sealed(content))
    found = record.read(path)
    assert found.version == 3 and found.job == {
        **made.job,
        "code": over(listed),
        "definitions": listed,
    }
    # Pictures carry the identity as it was then, also where the record is written anew.
    before = replace(made, job=content["job"]).identity
    assert found.identity != before == found.made_with == found.carried
    assert made.carried == made.identity
    again = tmp_path / "again.record.json"
    again.write_text(found.text())
    assert record.read(again) == found
    assert account_of(path)["job"] == found.job
    path.write_text(path.read_text().replace("2" * 8, "3" * 8))
    with pytest.raises(Problem, match="is not as it was written"):
        record.read(path)


def test_identity_is_of_what_shapes_the_result(made):
    moved = replace(made, job={**made.job, "stage": "elsewhere.loss"}, seconds=99.0)
    assert moved.identity == made.identity
    for key, value in (("name", "b"), ("environment", {"numpy": "3"}), ("inputs", {})):
        assert replace(made, job={**made.job, key: value}).identity != made.identity
    other = replace(made, inputs=dict.fromkeys(made.inputs, "0" * 64))
    assert other.identity != made.identity


def test_a_missing_or_broken_file_is_a_problem(tmp_path):
    path = tmp_path / "record.json"
    with pytest.raises(Problem, match="is missing; build it with snakemake"):
        record.read(path)
    for text in ("{", "[" * 200_000, '{"version": Infinity}'):
        path.write_text(text)
        with pytest.raises(Problem, match="is no record"):
            record.read(path)
        assert account_of(path) is None


CHILD = """
import datetime, subprocess, sys
from pathlib import Path
from ptq_dynamics.engine import record
from ptq_dynamics.engine.manifest import Manifest
work = "block = b'x' * 1_500_000_000; sum(n * n for n in range(5_000_000))"
subprocess.run([sys.executable, "-c", work], check=True)
output = Manifest(Path("manifest.json"), {}, {})
made = record.describe({"environment": {}}, {}, output, None, datetime.datetime.now(), 1.0)
print(made.peak_memory, made.cpu_seconds)
"""


@pytest.mark.slow
def test_memory_and_time_of_a_jobs_children_count(tmp_path):
    done = python(["-c", CHILD], tmp_path)
    assert done.returncode == 0, done.stderr
    memory, seconds = done.stdout.split()
    assert int(memory) > 1.5e9
    assert float(seconds) > 0.3


def test_a_build_of_a_library_is_named_by_the_bytes_that_are_installed():
    """As hashed here from the files themselves."""
    lines = []
    for file in metadata.distribution("filelock").files:
        noted = file.parent.name.endswith(".dist-info") and file.name in (
            "INSTALLER",
            "REQUESTED",
            "RECORD",
        )
        if not noted and file.suffix != ".pyc":
            content = file.read_binary()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            lines.append(f"{file},sha256={digest.rstrip('=')},{len(content)}")
    assert len(lines) > 5
    expected = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    assert wheel("filelock") == expected
    assert wheel("no-such-distribution") is None
