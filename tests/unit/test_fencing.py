"""Who lost the lease on a result, and does not know, cannot harm what its new owner makes."""

import itertools
import os

import pytest
from ptq_dynamics.engine import manifest, publish
from ptq_dynamics.engine.paths import MANIFEST, RECORD, Paths

IDENTITY = "0123456789abcdef" * 4
FILES = ("curve.csv", "step-1/model.safetensors")


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
        publish.prepare(self.work, made, self.text)

    def publish(self) -> None:
        # What it asked about the lease was true when it asked.
        publish.publish(self.work, self.paths, lambda: None)


@pytest.fixture
def paths(tmp_path):
    found = Paths(tmp_path / "result")
    found.folder.mkdir()
    earlier = Owner(found, "0")
    earlier.make()
    earlier.publish()
    return found


def is_of(paths: Paths, owner: Owner) -> bool:
    names = [*FILES, RECORD]
    texts = {(paths.folder / name).read_text() for name in names}
    return texts == {owner.text} and manifest.read(paths.manifest).is_whole() is None


def test_the_new_owner_goes_on_with_what_the_old_one_left(paths):
    old = Owner(paths, "1")
    old.work.mkdir(exist_ok=True)
    (old.work / "state").write_text("so far")
    new = Owner(paths, "2")
    assert (new.work / "state").read_text() == "so far"
    with pytest.raises(FileNotFoundError):
        (old.work / "state").write_text("late")
    assert paths.works() == [new.work]


def test_at_every_move_of_the_old_owner_the_new_one_may_publish(paths, monkeypatch):
    """It stops before one of its moves, and goes on when another has published the result."""
    stopped = 0
    for number in itertools.count():
        old = Owner(paths, f"{2 * number + 1:x}"[-1])
        old.make()
        moves = itertools.count()
        new = None

        def move(source, target, number=number, moves=moves):
            nonlocal new
            if next(moves) == number:
                monkeypatch.undo()
                new = Owner(paths, "f")
                new.make()
                new.publish()
                monkeypatch.setattr(publish, "_move", move)
            os.replace(source, target)

        monkeypatch.setattr(publish, "_move", move)
        try:
            old.publish()
        except FileNotFoundError:
            stopped += 1
        monkeypatch.undo()
        if new is None:
            break
        assert is_of(paths, new), number
    # Record and manifest of the earlier result, what it lists, what is new, record and manifest.
    assert stopped == number == 2 + 2 + 2 + 2
    assert is_of(paths, old)
    assert not (old.work / MANIFEST).exists() or old.work in paths.works()
