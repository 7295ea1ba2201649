"""Results known but absent: dropped files come back when a job needs them, as they were."""

import json
from dataclasses import replace

import pytest
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.machine import Device
from support import differing
from toy import NAMES, Toy

pytestmark = pytest.mark.slow


def drop(toy, name, *files):
    """Drop files of a result."""
    found = manifest.read(toy.folder / f"results/{name}/manifest.json")
    found.drop(files)
    assert found.dropped() == {*files}
    assert not any((found.folder / file).exists() for file in files)


def test_what_was_dropped_is_no_reason_to_build_and_comes_back_when_it_is_read(toy):
    complete = toy.results()
    drop(toy, "walk", "sums.txt")
    drop(toy, "numbers", "sub/numbers.txt")
    assert toy.settle() == dict.fromkeys(NAMES, True)
    times = {path: path.stat().st_mtime_ns for path in toy.folder.rglob("*record.json")}
    # Read again, and so are the numbers that it is made from.
    said = toy.build(title="sum")
    assert {*said} == toy.made(said) == {"total"}, said
    assert said["total"].count("done in") == 3
    changed = {"total.json", "total.manifest.json", "total.spec.json"}
    assert {*differing(complete, toy.results())} == changed
    for path, before in times.items():
        assert (path.stat().st_mtime_ns == before) == (path.name == "record.json")
    assert not list(toy.folder.rglob("*absent.json")) and not list(toy.folder.rglob(".work-*"))


def test_what_cannot_be_made_again_is_a_line_of_each_job_and_costs_nothing(toy):
    drop(toy, "walk", "sums.txt")
    toy.settle(title="sum")
    before = toy.results()
    toy.edit("walk", "float(done[-1]", "1 + float(done[-1]")
    done = toy.run("total")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    why, line = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert why.startswith("error: toy.walk two: toy.walk changed since the job was planned")
    assert "the dropped files of results/walk could not be made again (see above)" in line
    assert not differing(before, toy.results())


KILLED = """
import os, sys
from ptq_dynamics.engine import run
replace = os.replace
def once(old, new):
    replace(old, new)
    os._exit(9) if "/out/1" in str(old) else None
os.replace = once
sys.exit(run.main(["results/walk/record.json", "--restore"]))
"""


def test_a_kill_while_files_are_put_back_loses_none_of_them(tmp_path):
    toy = Toy.at(tmp_path)
    toy.edit("walk", "def run", 'def agree(first, second):\n    return "yes"\ndef run')
    saving = "(context.out / str(len(done))).write_text(str(number))"
    toy.edit("walk", "time.sleep(context.settings.pause)", saving)
    toy.build()
    complete, path = toy.results(), toy.folder / "results/walk/record.json"
    path.write_text(replace(record.read(path), device=Device("cuda")).text())
    drop(toy, "walk", "1", "2", "3")
    assert toy.python("-c", KILLED).returncode == 9
    done = toy.run("walk", "--restore")
    assert done.returncode == 0, done.stderr
    assert {*differing(complete, toy.results())} <= {"walk/record.json"}


@pytest.mark.parametrize(("device", "outcome"), [("cpu", 1), ("cuda", 1), ("cuda", 0)])
def test_other_bytes_cost_nothing_and_on_a_gpu_they_may_agree(toy, device, outcome):
    """As on another processor: here it goes on from a state that is none of its own."""
    path = toy.folder / "results/walk/record.json"
    known = record.read(path)
    path.write_text(replace(known, device=Device(device)).text())
    if not outcome:
        toy.edit("walk", "def run", 'def agree(first, second):\n    return "99 more"\ndef run')
    drop(toy, "walk", "sums.txt")
    toy.settle(title="sum")
    before, identity = toy.results(), known.identity
    reader = toy.folder / "results/total.record.json"
    first = reader.read_bytes()
    scratch = toy.folder / f"results/walk/.work-{identity[:16]}-1/scratch"
    scratch.mkdir(parents=True)
    (scratch / "state.txt").write_text("99.0")
    done = toy.run("total")
    assert done.returncode == outcome, done.stderr
    if outcome:
        assert "it came out different in sums.txt" in done.stderr
        assert not differing(before, toy.results())
        return
    assert record.read(path).second == "second build on a GPU: 99 more"
    total = json.loads((toy.folder / "results/total.json").read_text())["sum"]
    assert total == float((path.parent / "sums.txt").read_text().split()[-1])
    # A reader of the first one is outdated, and the one that had it built again is not.
    assert toy.settle(title="sum")["total"]
    reader.write_bytes(first)
    assert not toy.settle()["total"]
