"""Who lost the lease on a result, and does not know, cannot harm what its new owner makes."""

import itertools
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from ptq_dynamics.engine import manifest, publish, record
from ptq_dynamics.engine.paths import Paths

IDENTITY = "0123456789abcdef" * 4
FILES = ("curve.csv", "step-1/model.safetensors")
JOB = {"stage": "a", "name": "b", "inputs": {}, "libraries": {}}


class Owner:
    """A process that makes the result with a lease's token."""

    def __init__(self, paths: Paths, token: str) -> None:
        self.paths, self.text = paths, f"by {token}\n"
        self.work = publish.take_over(paths, IDENTITY, token * 32)

    def make(self) -> None:
        out = self.work / publish.OUT
        for name in FILES:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(self.text)
        made = manifest.describe(out, self.paths.manifest, {})
        account = record.describe(JOB, {}, made, None, datetime.now(UTC), 1.0)
        # With processes killed in between, the record of the work folder is what is published.
        self.record = replace(account, machine=account.machine)
        (self.work / "record.json").write_text(self.record.text())

    def publish(self) -> None:
        # What it asked about the lease was true when it asked.
        publish.publish(self.work, self.paths, self.record, lambda: None)


@pytest.fixture
def paths(tmp_path):
    found = Paths(tmp_path / "result")
    found.folder.mkdir()
    earlier = Owner(found, "0")
    earlier.make()
    earlier.publish()
    return found


def is_of(paths: Paths, owner: Owner) -> bool:
    texts = {(paths.folder / name).read_text() for name in FILES}
    found = manifest.read(paths.manifest)
    said = (found.text(), paths.record.read_text()) == (
        owner.record.manifest(paths.manifest).text(),
        owner.record.text(),
    )
    return said and texts == {owner.text} and found.harm(deep=True) is None


def at_move(monkeypatch, number, happens):
    """Have something happen before one of the next moves of files."""
    moves, plain = itertools.count(), os.replace

    def move(source, target):
        if next(moves) == number:
            happens()
        plain(source, target)

    monkeypatch.setattr(os, "replace", move)


def test_at_every_move_of_the_old_owner_the_new_one_may_publish(paths, monkeypatch):
    """It stops before one of its moves, and goes on when another has published the result."""
    stopped, owners = 0, []

    def publish_meanwhile():
        owners.append(Owner(paths, "f"))
        owners[-1].make()
        owners[-1].publish()

    for number in itertools.count():
        old = Owner(paths, f"{2 * number + 1:x}"[-1])
        old.make()
        at_move(monkeypatch, number, publish_meanwhile)
        try:
            old.publish()
        except FileNotFoundError:
            stopped += 1
        monkeypatch.undo()
        if len(owners) == number:
            break
        assert is_of(paths, owners[-1]), number
    # Record and manifest of the earlier result, what it lists, what is new; then the new record and
    # manifest, each written in the work folder first.
    assert stopped == number == 2 + 2 + 2 + 2 * 2
    assert is_of(paths, old)


def kill():
    raise KeyboardInterrupt


def test_at_every_move_a_kill_leaves_what_the_next_process_only_publishes(paths, monkeypatch):
    """And what it leaves is never taken for a result that it is not."""
    for number in itertools.count():
        old = Owner(paths, f"{number:x}"[-1])
        old.make()
        at_move(monkeypatch, number, kill)
        try:
            old.publish()
            break
        except KeyboardInterrupt:
            monkeypatch.undo()
        assert not paths.manifest.exists() or manifest.read(paths.manifest).harm(deep=True) is None
        if paths.record.exists():
            held = record.read(paths.record).manifest(paths.manifest)
            assert held.harm(deep=True) is None, number
        work = publish.take_over(paths, IDENTITY, "e" * 32)
        assert publish.is_prepared(work, paths), number
        publish.publish(work, paths, record.read(work / "record.json"), lambda: None)
        assert is_of(paths, old)
    assert number == 10
