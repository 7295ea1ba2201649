"""Whether a result is current: specification, inputs, and files by size, time and bytes."""

import json
import os
import time

import pytest
from ptq_dynamics.content import sha256
from ptq_dynamics.jobs import manifest, verified
from ptq_dynamics.jobs.current import is_current
from ptq_dynamics.jobs.paths import Paths
from ptq_dynamics.jobs.verified import NOTES, Verifier

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
    result = write(tmp_path / "made", {"a.txt": "one", "b.txt": "two"}, {"n": 1})
    account = {
        "version": 1,
        "job": JOB,
        "inputs": {"read/manifest.json": read.digest()},
        "output": {"made/manifest.json": result.digest()},
    }
    # The clock of the file system is coarse.
    time.sleep(0.02)
    Paths.of(JOB).record.write_text(json.dumps(account))
    time.sleep(0.02)
    return result


def test_what_its_record_fits_is_current(made):
    assert is_current(JOB)
    assert not NOTES.exists(), "a file was read that nobody had touched"


def record(change):
    path = Paths.of(JOB).record
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "harm",
    [
        lambda _: record(lambda content: content["job"].update(stage="a.c")),
        lambda _: record(lambda content: content.update(version=0)),
        lambda _: record(lambda content: content["inputs"].clear()),
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


def test_a_touched_file_is_read_once(made, monkeypatch):
    count = []
    monkeypatch.setattr(verified, "sha256", lambda path: count.append(path) or sha256(path))
    for _ in range(3):
        os.utime(made.folder / "a.txt")
        for _ in range(3):
            assert is_current(JOB)
    assert len(count) == 3
    NOTES.write_bytes(b"\xff no notes")
    assert is_current(JOB) and len(count) == 4


def test_dropped_files_may_be_absent(made):
    made.drop(["a.txt"], "drop/manifest.json")
    assert is_current(JOB)
    (made.folder / "b.txt").unlink()
    assert not is_current(JOB)


def test_damage_before_the_record_is_found_by_all_bytes_alone(made):
    (made.folder / "a.txt").write_text("own")
    time.sleep(0.02)
    os.utime(Paths.of(JOB).record)
    since = os.stat(Paths.of(JOB).record).st_ctime_ns
    assert Verifier().is_whole(made, since)
    assert not Verifier(deep=True).is_whole(made, since)


def test_who_remembers_nothing_writes_nothing(made):
    os.utime(made.folder / "a.txt")
    verifier = Verifier(remembers=False)
    assert verifier.is_whole(made, os.stat(Paths.of(JOB).record).st_ctime_ns)
    assert not NOTES.exists()
