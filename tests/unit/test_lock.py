"""The lock file: what it takes from a hub on this machine, and what it says of what moved."""

import json

import pytest
from hub import COMMIT
from huggingface_hub import constants, hf_hub_download
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub import lock
from support import one_line, python

LATER = "f" * 40
NAME, OTHER = "people/family", "people/pickles"
FILES = {
    "config.json": "{}",
    "tokenizer.json": '{"version": "1.0"}',
    "model.safetensors": "weights " * 1000,
    "README.md": "# A family",
    "pytorch_model.bin": "pickle",
    "optimizer.bin": "state",
    "adapter_model.safetensors": "adapter",
    "tokenizer.model": "pieces",
    "code.py": "",
}
TAKEN = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer.model"]


@pytest.fixture
def hub(hub):
    """A hub with two repositories, one with pickles only."""
    for name in (NAME, OTHER):
        (folder := hub.root / name).mkdir(parents=True)
        for file, text in FILES.items():
            if name == NAME or not file.endswith((".safetensors", ".model")):
                (folder / file).write_text(text)
    hub.branches |= {"main", "step-1", "stage1/step-2"}
    return hub


WANTED = [lock.Wanted(NAME, "main"), lock.Wanted(NAME, "step-1"), lock.Wanted(OTHER, "main")]


def test_what_is_locked_is_read_back_and_locking_again_changes_nothing(hub, tmp_path, capsys):
    path = tmp_path / "lock.json"
    assert lock.lock(WANTED, path) == (3, [])
    first = path.read_bytes()
    found = lock.read_lock(path)
    assert found[NAME]["step-1"] == lock.pinned(lock.Wanted(NAME, "step-1"))
    assert [file.name for file in found[NAME]["step-1"].files] == TAKEN
    assert lock.lock(reversed(WANTED), path) == (3, [])
    assert path.read_bytes() == first
    assert capsys.readouterr().out == ""
    content = json.loads(first)
    assert list(content) == [NAME, OTHER] and list(content[NAME]) == ["main", "step-1"]
    assert set(content[NAME]["main"]["files"][0]) == {"name", "size", "digest"}


def test_what_moved_is_said_and_what_fails_stays_while_the_others_go_on(hub, tmp_path, capsys):
    path = tmp_path / "lock.json"
    lock.lock(WANTED, path)
    before = lock.read_lock(path)
    (hub.root / NAME / "model.safetensors").write_text("other weights")
    hub.commit = LATER
    hub.branches.remove("step-1")
    hub.gated.add(OTHER)
    capsys.readouterr()
    more = [lock.Wanted("people/nobody", "main"), lock.Wanted(NAME, "stage1/step-2")]
    resolved, failed = lock.lock([*WANTED, *more], path)
    assert resolved == 2
    for line, words in zip(
        failed,
        [
            f"{NAME}@step-1: there is no such revision or commit; correct its name",
            "people/nobody@main: there is no such repository, or it is private",
            f"{OTHER}@main: the hub denies access; accept its terms at {hub.url}/{OTHER}",
        ],
        strict=True,
    ):
        assert line.startswith(words) and "\n" not in line
    moved = f"{NAME}@main moved from {COMMIT[:12]} to {LATER[:12]}"
    assert capsys.readouterr().out == f"{moved}\n"
    after = lock.read_lock(path)
    assert after[NAME]["main"].commit == LATER == after[NAME]["stage1/step-2"].commit
    assert after[NAME]["main"].files != before[NAME]["main"].files
    for repository, kept in ((NAME, "step-1"), (OTHER, "main")):
        assert after[repository][kept] == before[repository][kept]
    assert "people/nobody" not in after


def remove(name):
    return lambda hub: (hub.root / OTHER / name).unlink()


@pytest.mark.parametrize(
    ("change", "part", "words"),
    [
        (remove("config.json"), "checkpoint", "main has no complete checkpoint; correct"),
        (remove("tokenizer.json"), "tokenizer", "main has no complete tokenizer; correct"),
        (lambda hub: setattr(hub, "sizeless", True), "checkpoint", "HF_ENDPOINT"),
    ],
)
def test_a_revision_that_lacks_what_is_wanted_is_one_line(hub, tmp_path, change, part, words):
    change(hub)
    _, (line,) = lock.lock([lock.Wanted(OTHER, "main", part=part)], tmp_path / "lock.json")
    assert line.startswith(f"{OTHER}@main") and words in line and "\n" not in line


def test_revisions_fit_a_pattern_and_the_cache_serves_without_a_network(hub, monkeypatch):
    assert lock.revisions(NAME, "st*") == ["stage1/step-2", "step-1"]
    with pytest.raises(Problem, match=r"no revision like 'x\*' \(it has: main, stage1/step-2, "):
        lock.revisions(NAME, "x*")
    entry = lock.pinned(lock.Wanted(NAME, "step-1"))
    for file in entry.files:
        hf_hub_download(NAME, file.name, revision="step-1", cache_dir=constants.HF_HUB_CACHE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert lock.revisions(NAME, "*") == ["step-1"]
    found = lock.pinned(lock.Wanted(NAME, "step-1"))
    assert found.commit == COMMIT and [each.name for each in found.files] == TAKEN
    assert {each.size for each in found.files} == {each.size for each in entry.files}


def test_a_bad_proxy_is_one_line(hub, tmp_path):
    code = "from pathlib import Path; from ptq_dynamics.hub import lock; "
    code += f"print(*lock.lock([lock.Wanted({NAME!r}, 'main')], Path('l.json'))[1], sep='%')"
    variables = {"ALL_PROXY": "http://[::1", "NO_PROXY": "", "HF_ENDPOINT": "http://hub.invalid"}
    done = python(["-c", code], tmp_path, {**variables, "HF_HUB_OFFLINE": "0"})
    line = f"{NAME}@main: the list of files cannot be downloaded ("
    assert done.stdout.startswith(line), done.stderr
    assert done.stdout.count("\n") == 1 and "%" not in done.stdout


SOUND = {"name": "config.json", "size": 1, "digest": "git-sha1:" + LATER}
ODD = [
    {"commit": COMMIT, "files": [{**SOUND, "name": "../../evil.py"}]},
    {"commit": "main", "files": [SOUND]},
]


@pytest.mark.parametrize("content", ["text", *({NAME: {"main": odd}} for odd in ODD)])
def test_what_is_no_lock_file_is_one_line(tmp_path, content):
    path = tmp_path / "lock.json"
    path.write_text(content if content == "text" else json.dumps(content))
    with one_line(str(path), "run ptq-dynamics lock"):
        lock.read_lock(path)
