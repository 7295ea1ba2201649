"""What a killed process leaves of a result, the next one publishes."""

import itertools
import os
from datetime import UTC, datetime

from ptq_dynamics.engine import execute, manifest, record
from ptq_dynamics.engine.paths import Paths

IDENTITY = "0123456789abcdef" * 4
FILES = ("curve.csv", "step-1/model.safetensors")
JOB = {"stage": "a", "name": "b", "inputs": {}, "libraries": {}}


def leased(folder) -> Paths:
    paths = Paths(folder)
    folder.mkdir()
    paths.lease.touch()
    return paths


def make(paths: Paths, text: str) -> record.Record:
    """Make a result in its work folder."""
    work = paths.work(IDENTITY)
    for name in FILES:
        (work / execute.OUT / name).parent.mkdir(parents=True, exist_ok=True)
        (work / execute.OUT / name).write_text(text)
    made = manifest.describe(work / execute.OUT, paths.manifest, {})
    account = record.describe(JOB, {}, made, None, datetime.now(UTC), 1.0)
    (work / "record.json").write_text(account.text())
    return account


def put(paths: Paths) -> None:
    work = paths.work(IDENTITY)
    execute.publish(work, paths, record.read(work / "record.json"))


def kill_at(monkeypatch, number):
    """Kill this process before one of the next times when files are moved or removed."""
    count = itertools.count()

    def patched(plain):
        def act(*arguments, **options):
            if next(count) == number:
                raise KeyboardInterrupt
            return plain(*arguments, **options)

        return act

    for name in ("replace", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, patched(getattr(os, name)))


def test_whenever_it_is_killed_the_next_process_only_publishes_what_is_left(tmp_path, monkeypatch):
    """And what it leaves is never taken for a result that it is not."""
    paths = leased(tmp_path / "result")
    make(paths, "earlier")
    put(paths)
    for number in itertools.count():
        made = make(paths, text := f"by {number}\n")
        kill_at(monkeypatch, number)
        try:
            put(paths)
            break
        except KeyboardInterrupt:
            monkeypatch.undo()
        assert not paths.manifest.exists() or manifest.read(paths.manifest).harm(deep=True) is None
        if paths.record.exists():
            held = record.read(paths.record).manifest(paths.manifest)
            assert held.harm(deep=True) is None, number
        assert execute.is_prepared(paths.work(IDENTITY), paths), number
        put(paths)
        assert record.read(paths.record).files == made.files
        assert {(paths.folder / name).read_text() for name in FILES} == {text}
        assert manifest.read(paths.manifest).harm(deep=True) is None
    # Record, manifest and list of dropped files of the earlier result, its files and their folder;
    # then what is new, with record and manifest.
    assert number >= 3 + 3 + 2 + 2


def test_what_a_killed_process_has_moved_is_no_result_once_it_has_changed(tmp_path):
    paths = leased(tmp_path / "result")
    make(paths, "made")
    put(paths)
    assert execute.is_prepared(paths.work(IDENTITY), paths)
    (paths.folder / FILES[0]).write_text("else")
    assert not execute.is_prepared(paths.work(IDENTITY), paths)
