"""The table of code: whole or not, added to, and gone."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes, record
from ptq_dynamics.engine.fingerprint.code import over

DEFINITIONS = st.dictionaries(st.text(max_size=4), st.text("0123456789abcdef", max_size=8))


def table(*definitions):
    return {over(each): each for each in definitions}


@given(first=st.lists(DEFINITIONS, max_size=3), more=st.lists(DEFINITIONS, max_size=3))
def test_what_is_added_is_read_back_beside_what_was_there(tmp_path_factory, first, more):
    folder = tmp_path_factory.mktemp("table") / "code"
    codes.add(folder, table(*first))
    codes.add(folder, table(*more))
    assert codes.known(folder) == table(*first, *more)


def test_nothing_is_written_where_all_is_there(tmp_path):
    codes.add(tmp_path, table({"run": "1"}, {"run": "2"}))
    before = {path: path.stat() for path in tmp_path.iterdir()}
    codes.add(tmp_path, table({"run": "2"}))
    assert {path: path.stat() for path in tmp_path.iterdir()} == before


def test_every_byte_counts(tmp_path):
    codes.add(tmp_path, table({"": "1" * 32, "run": "2" * 8, "f": "3 4"}))
    (entry,) = codes.entries(tmp_path)
    whole = entry.read_bytes()
    contents = [whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :] for at, byte in enumerate(whole)]
    contents += [b"", b"[]", b"{}", b"[" * 200_000, json.dumps(json.loads(whole)).encode()]
    for content in contents:
        entry.write_bytes(content)
        with pytest.raises(Problem, match="make figures"):
            codes.read(entry)
        assert codes.known(tmp_path) == {}
    codes.add(tmp_path, table(json.loads(whole)))
    assert entry.read_bytes() == whole


def test_what_is_of_no_use_is_forgotten(tmp_path):
    used, neither = {"run": "1"}, {"run": "2"}
    codes.add(tmp_path, table(used, neither))
    codes.forget(tmp_path, table(used))
    assert codes.known(tmp_path) == table(used)


def test_what_records_name_is_found_unless_they_hold_it_themselves(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made = tmp_path / "project/made"
    made.mkdir(parents=True)
    (made / "linked").symlink_to(elsewhere)
    (made / "a").symlink_to(elsewhere)
    (made / "around").symlink_to("..")
    (elsewhere / "back").symlink_to(made)
    named, linked, held = ({"run": f"{n}"} for n in range(3))
    contents = [{"job": {"code": over(named)}}, {"version": 2, "job": {"code": held}}]
    contents += [{"job": {"code": {"run": "1"}}}, {"job": 1}, {}, []]
    for number, content in enumerate(contents):
        text = record.sealed(content) if content else "{"
        (made / f"{number}.record.json").write_text(text)
    (elsewhere / "record.json").write_text(record.sealed({"job": {"code": over(linked)}}))
    assert codes.named([made]) == {over(named), over(linked)}


def test_what_is_no_folder_is_one_line(tmp_path):
    (tmp_path / "code").touch()
    assert codes.known(tmp_path / "code") == {}
    with pytest.raises(Problem, match="is no folder; remove it"):
        codes.add(tmp_path / "code", table({"run": "1"}))
    used = table({"run": "1"})
    (entry,) = (tmp_path / f"{code}.json" for code in used)
    entry.mkdir()
    assert codes.known(tmp_path) == {}
    with pytest.raises(Problem, match="is a folder; remove it"):
        codes.add(tmp_path, used)
    codes.forget(tmp_path, {})
    assert entry.is_dir() and {*tmp_path.iterdir()} == {entry, tmp_path / "code"}


def test_what_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        codes.add(tmp_path, table({"run": "1"}))
    assert not list(tmp_path.iterdir())


def test_those_who_add_at_once_do_not_disturb_each_other(tmp_path):
    folder, used = tmp_path / "code", table(*({"run": f"{n}"} for n in range(20)))
    threads = [threading.Thread(target=codes.add, args=(folder, used)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.known(folder) == used
    assert sorted(folder.iterdir()) == [*codes.entries(folder)]


def test_pictures_and_results_of_a_scale_share_a_table():
    for path in ("figures/smoke/fig04.manifest.json", "results/smoke", "paper/smoke/record.json"):
        assert codes.table_of(path) == Path("results/smoke/code")
