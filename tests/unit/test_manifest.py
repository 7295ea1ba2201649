"""Manifests: round trips, and every way in which their files can be damaged."""

from pathlib import Path

import pytest
from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.engine.manifest import Manifest, describe, read
from ptq_dynamics.engine.paths import RECORD, beside
from support import one_line


def publish(folder, files, found_facts=None):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    made = describe(folder, folder / "manifest.json", found_facts or {})
    write_atomically(made.path, made.text())
    return read(made.path)


def test_what_is_described_is_read_back_without_hidden_files(tmp_path):
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
