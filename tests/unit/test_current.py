"""Whether a result is current: specification, inputs, and files by size, time and bytes."""

import json
import os
import time
from pathlib import Path

import pytest
from ptq_dynamics.base.content import sha256
from ptq_dynamics.engine import manifest, record, verified
from ptq_dynamics.engine.current import Results, is_current
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.verified import NOTES, Verifier

JOB = {"stage": "a.b", "folder": "made", "stem": None, "inputs": {"from": ["read/manifest.json"]}}


def write(folder, files, facts):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    result = manifest.describe(folder, folder / "manifest.json", facts)
    result.path.write_text(result.text())
    return result


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A result of two files and its record, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    read = write(tmp_path / "read", {"in.txt": "in"}, {})
    result = write(Path("made"), {"a.txt": "one", "b.txt": "two"}, {"n": 1})
    account = {
        "version": record.VERSION,
        "job": JOB,
        "inputs": {"read/manifest.json": read.digest()},
        "output": {"made/manifest.json": result.digest()},
    }
    Paths.of(JOB).record.write_text(record.sealed(account))
    # As its job does.
    verified.note(result, result.files)
    # The clock of the file system is coarse.
    time.sleep(0.02)
    return result


@pytest.fixture
def read(monkeypatch):
    """The files that were read, so far."""
    paths = []
    monkeypatch.setattr(verified, "sha256", lambda path: paths.append(path.name) or sha256(path))
    return paths


def test_what_its_record_fits_is_current(made, read):
    assert is_current(JOB)
    assert not read, "a file was read that nobody had touched"


def test_where_its_code_stands_does_not_count(made):
    assert is_current(JOB | {"stage": "elsewhere.c", "modules": ["a.kind"]})
    assert not is_current(JOB | {"stem": "elsewhere"})


def recorded(change):
    path = Paths.of(JOB).record
    content = json.loads(path.read_text())
    change(content)
    path.write_text(record.sealed(content))


@pytest.mark.parametrize(
    "harm",
    [
        lambda _: recorded(lambda content: content["job"].update(stem="c")),
        lambda _: recorded(lambda content: content.update(version=0)),
        lambda _: recorded(lambda content: content["inputs"].clear()),
        lambda _: Paths.of(JOB).record.write_text(
            Paths.of(JOB).record.read_text().replace("1", "2", 1)
        ),
        lambda _: Paths.of(JOB).record.write_text("{"),
        lambda _: Paths.of(JOB).record.write_text("[]"),
        lambda _: Paths.of(JOB).record.unlink(),
        lambda made: made.path.unlink(),
        lambda made: made.path.write_text(made.path.read_text().replace("1", "2")),
        lambda made: (made.folder / "a.txt").unlink(),
        lambda made: (made.folder / "a.txt").write_text("on"),
        lambda made: (made.folder / "a.txt").write_text("own"),
        lambda made: os.replace(made.folder / "a.txt", made.folder / "b.txt"),
        lambda _: os.unlink("read/manifest.json"),
    ],
)
def test_what_does_not_fit_is_not_current(made, harm):
    harm(made)
    assert not is_current(JOB)


def test_a_touched_file_is_read_once(made, read):
    for _ in range(3):
        os.utime(made.folder / "a.txt")
        for _ in range(3):
            assert is_current(JOB)
    assert read == ["a.txt"] * 3
    NOTES.write_bytes(b"\xff no notes\n")
    for _ in range(2):
        assert is_current(JOB)
    assert read[3:] == ["a.txt", "b.txt"]


def copied(made, damage=None):
    """The result in the place of the first, as a copy that began with the files."""
    os.rename(made.folder, "first")
    made.folder.mkdir()
    for name in ("a.txt", "b.txt", "manifest.json", "record.json"):
        (made.folder / name).write_bytes(Path("first", name).read_bytes())
        if name == damage:
            (made.folder / name).write_text("own")
        time.sleep(0.02)


def test_what_was_copied_is_read_once(made, read):
    copied(made)
    for _ in range(2):
        assert is_current(JOB)
    assert read == ["a.txt", "b.txt"]


def test_a_file_that_was_copied_wrong_before_its_record_is_found(made):
    copied(made, "a.txt")
    assert not is_current(JOB)


def test_dropped_files_may_be_absent(made):
    made.drop(["a.txt"], "drop/manifest.json")
    assert is_current(JOB)
    (made.folder / "b.txt").unlink()
    assert not is_current(JOB)


def test_damage_that_leaves_no_trace_is_found_by_all_bytes_alone(made):
    (made.folder / "a.txt").write_text("own")
    verified.note(made, made.files)
    assert Verifier().is_whole(made)
    assert not Verifier(deep=True).is_whole(made)


def test_who_remembers_nothing_writes_nothing(made, monkeypatch):
    monkeypatch.setattr(verified, "SPARE", 0)
    with NOTES.open("a") as file:
        file.write("stale\n" * 100)
    before = NOTES.read_bytes()
    os.utime(made.folder / "a.txt")
    verifier = Verifier(remembers=False)
    assert verifier.is_whole(made)
    assert NOTES.read_bytes() == before
    NOTES.unlink()
    assert Verifier(remembers=False).is_whole(made)
    assert not NOTES.exists()


def test_notes_do_not_only_grow(made, monkeypatch, read):
    monkeypatch.setattr(verified, "SPARE", 10)
    sizes = []
    for _ in range(50):
        os.utime(made.folder / "a.txt")
        time.sleep(0.005)
        assert is_current(JOB)
        sizes.append(len(NOTES.read_text().splitlines()))
    assert len(read) > 20 and max(sizes) <= 2 * 3 + 10 + 2
    del read[:]
    assert is_current(JOB) and not read


def test_a_file_that_changes_as_it_is_published_is_not_noted(made, read):
    NOTES.unlink()
    (made.folder / "a.txt").write_text("longer")
    (made.folder / "b.txt").unlink()
    verified.note(made, made.files)
    assert not NOTES.exists()


def accepted(*changes):
    """The record says that its job became another by word, change by change."""
    account = json.loads(Paths.of(JOB).record.read_text())
    digests = {"from": [account["inputs"]["read/manifest.json"]]}
    jobs = [JOB | change for change in ({}, *changes)]
    words = [
        {"reason": f"word {n}", "identity": record.identity(job, digests)}
        for n, job in enumerate(jobs[:-1])
    ]
    account |= {"job": jobs[-1], "accepted": words}
    Paths.of(JOB).record.write_text(record.sealed(account))
    return jobs


def test_what_was_accepted_and_undone_is_current(made):
    """By the words that were given until then."""
    jobs = accepted({"code": {"": "2"}}, {"code": {"": "3"}})
    inputs = ["read/manifest.json"]
    for number, job in enumerate(jobs):
        results = Results(Verifier())
        assert results.is_current(job, inputs, Paths.of(job)), number
        words = "; ".join(f"word {n}" for n in range(number))
        assert results.accepted.get("made/manifest.json", "") == words
    assert not is_current(JOB | {"code": {"": "4"}})
