"""What differs, in words; the root of a release; two tables side by side; signatures."""

import hashlib
import json
import shutil
import subprocess

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.content import canonical
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.fingerprint.code import over
from ptq_dynamics.figures.settings import ORIGIN
from ptq_dynamics.measure import measurements
from ptq_dynamics.provenance import differences, signing
from ptq_dynamics.provenance.archive import Archive, identity_in
from ptq_dynamics.provenance.audit import root
from ptq_dynamics.provenance.comparison import Build, compare, parting
from support import ROOT, python

BEFORE = {
    "name": "gptq-4bit",
    "folder": "results/smoke/quantize/a",
    "stem": None,
    "engine": 1,
    "settings": {"method": {"damping": 0.01, "bits": 4}, "modules": ["q", "k"], "limit": None},
    "code": {"": "0", "gptq": "1", "Layer": "2", "Layer.update": "3", "(1)": "4"},
    "environment": {"torch": "2.13.0", "numpy": "2.4.6"},
    "inputs": {"trunk": ["results/smoke/train/a/manifest.json"]},
}
PLACES = {
    "gptq": ["ptq_dynamics.quantize.gptq"],
    "Layer": ["ptq_dynamics.quantize.layers"],
    "(1)": ["ptq_dynamics.quantize.gptq"],
}


def changed(**changes):
    now = json.loads(json.dumps(BEFORE))
    for key, value in changes.items():
        *path, last = key.split("__")
        at = now
        for part in path:
            at = at[part]
        at[last] = value
    return now


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (changed(), []),
        (changed(settings__method__damping=0.05), ["method.damping 0.01 → 0.05"]),
        (changed(settings__limit=3), ["limit null → 3"]),
        (changed(settings__modules=["q", "v"]), ["modules[1] k → v"]),
        (changed(settings__modules=["q"]), ['modules ["q","k"] → ["q"]']),
        (changed(settings__more=1), ["more is new (1)"]),
        (changed(code__gptq="9"), ["quantize.gptq.gptq changed"]),
        (
            changed(code__Layer="9", **{"code__Layer.update": "9"}),
            ["quantize.layers.Layer.update changed"],
        ),
        (changed(code__Layer="9"), ["quantize.layers.Layer changed"]),
        (changed(**{"code__(1)": "9"}), ["a statement at the top of quantize.gptq changed"]),
        (changed(**{"code__": "9"}), ["what definitions of its code refer to changed"]),
        (changed(code__other="9"), ["other is new"]),
        (changed(environment__torch="2.14.0"), ["torch 2.13.0 → 2.14.0"]),
        (changed(environment__scipy="1"), ["scipy unused → 1"]),
        (
            changed(inputs__trunk=["b"]),
            ["reads b", f"no longer reads {BEFORE['inputs']['trunk'][0]}"],
        ),
        (changed(engine=2), ["engine 1 → 2"]),
    ],
)
def test_differences_are_told_in_words(now, words):
    # As records have it: a digest, and a table of what each is over.
    table = {over(each["code"]): each["code"] for each in (BEFORE, now)}
    before, now = ({**each, "code": over(each["code"])} for each in (BEFORE, now))
    assert list(differences.differences(before, now, PLACES, table)) == words
    if before["code"] != now["code"]:
        del table[before["code"]]
        (told,) = differences.differences(before, now, PLACES, table)
        assert told.startswith("its code changed"), told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_settings_that_differ_are_never_passed_over(one, other):
    assert bool([*differences.settings(one, other)]) == (canonical(one) != canonical(other))


@given(st.dictionaries(st.text(min_size=1), st.text(), min_size=1), st.data())
def test_the_root_is_of_every_path_and_digest(leaves, data):
    name = data.draw(st.sampled_from(sorted(leaves)))
    before = root(leaves)
    assert before == root(dict(reversed(leaves.items())))
    assert before != root(leaves | {name: leaves[name] + "x"})
    assert before != root({k: v for k, v in leaves.items() if k != name})
    renamed = {k + ("x" if k == name else ""): v for k, v in leaves.items()}
    assert len(renamed) < len(leaves) or before != root(renamed)


def test_the_root_of_three_is_that_of_a_tree():
    def digest(content):
        return hashlib.sha256(content).digest()

    a, b, c = (digest(f"{name}\0{name}{name}".encode()) for name in "abc")
    by_hand = digest(digest(a + b) + digest(c)).hex()
    assert root({"b": "bb", "a": "aa", "c": "cc"}) == by_hand


def table(folder, change=None):
    """A folder with the released table of scale laptop, in part, changed."""
    frame = measurements.read(ROOT / "results/reference/laptop/measurements.csv").head(50)
    if change is not None:
        frame = change(frame)
    folder.mkdir(parents=True)
    measurements.write(frame, folder / "measurements.csv")
    return Build(folder)


def moved(by):
    """The first measurement, moved by so many of its standard errors."""

    def change(frame):
        frame.loc[0, "value"] += by * frame.loc[0, "stderr"]
        return frame

    return change


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (None, {"equal": 50}),
        # Of two such errors: 2√2 = 2.83.
        (moved(2.7), {"equal": 49, "within tolerance": 1}),
        (moved(-2.9), {"equal": 49, "different": 1}),
        (lambda frame: frame.drop(index=3), {"equal": 49, "only in one": 1}),
        (lambda frame: frame.assign(value=float("nan")), {"different": 50}),
    ],
)
def test_tables_are_compared_value_by_value(tmp_path, change, verdicts):
    found = list(compare(table(tmp_path / "a"), table(tmp_path / "b", change)))
    counts = pd.Series([each.verdict for each in found]).value_counts().to_dict()
    assert counts == verdicts
    assert not any(each.paired for each in found)


def test_without_records_it_is_unknown_where_builds_part(tmp_path):
    with pytest.raises(Problem, match="has no records of jobs"):
        parting(table(tmp_path / "a"), table(tmp_path / "b"))


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "is missing"), ("a,b\n1,2\n", "is no table of measurements"), ("", "is no table")],
)
def test_what_is_no_table_is_one_line(tmp_path, text, words):
    path = tmp_path / "measurements.csv"
    if text is not None:
        path.write_text(text)
    arguments = ["-m", "ptq_dynamics.cli", "compare", str(path), str(path)]
    done = python(arguments, ROOT)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"error: {path} ") and words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.png"], "nowhere.png is no file"),
        (["README.md"], "carries no identity"),
        (["results/reference/laptop/measurements.csv:0"], "has rows 1 to"),
        (["results/reference/sweeps/regime.csv"], "is of no result here"),
        (["fig99", "--planned"], "there is no figure fig99"),
    ],
)
def test_what_cannot_be_traced_is_one_line(arguments, words):
    done = python(["-m", "ptq_dynamics.cli", "trace", *arguments], ROOT)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr, done.stderr


def test_a_planned_figure_is_traced_down_to_its_text():
    arguments = ["trace", "fig04", "--planned", "--scale", "smoke", "--json"]
    done = python(["-m", "ptq_dynamics.cli", *arguments], ROOT)
    chain = json.loads(done.stdout)
    steps = {step["manifest"]: step for step in chain["steps"]}
    assert chain["top"] == "figures/smoke/fig04.manifest.json" and not chain["missing"]
    assert {path for step in steps.values() for path in step["inputs"]} < steps.keys()
    leaves = {step["job"] for step in steps.values() if not step["inputs"]}
    assert leaves == {"embedded main"}, leaves


def test_a_picture_is_known_by_what_it_carries(tmp_path):
    path, identity = tmp_path / "a.png", "0123456789abcdef" * 4
    path.write_bytes(b"\x89PNG\0" + ORIGIN.format(scale="scale gpu", identity=identity).encode())
    assert identity_in(path) == ("scale gpu", identity)
    path.write_bytes(b"\x89PNG\0ptq-dynamics, scale gpu: none")
    assert identity_in(path) is None


@pytest.fixture
def keys(tmp_path):
    """Two key pairs, and a file in which one of them may sign."""
    if shutil.which("ssh-keygen") is None:
        pytest.fail("signatures cannot be tested: ssh-keygen is not installed (openssh-client)")
    for name in ("mine", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", tmp_path / name]
        subprocess.run(command, check=True)
    public = (tmp_path / "mine.pub").read_text()
    (tmp_path / "signers").write_text(f"me@example.org {public}")
    return tmp_path


def test_a_signature_is_of_one_root_by_one_key(keys):
    text, path = signing.statement("smoke", "ab" * 32), keys / "release.sig"
    signing.sign(text, keys / "mine", path)
    signing.verify(text, path, keys / "signers", "me@example.org")
    with pytest.raises(Problem, match="ssh-keygen could not verify"):
        signing.verify(
            signing.statement("smoke", "ac" * 32), path, keys / "signers", "me@example.org"
        )
    with pytest.raises(Problem, match="ssh-keygen could not verify"):
        signing.verify(text, path, keys / "signers", "you@example.org")
    signing.sign(text, keys / "other", path)
    with pytest.raises(Problem, match="ssh-keygen could not verify"):
        signing.verify(text, path, keys / "signers", "me@example.org")
    with pytest.raises(Problem, match="ssh-keygen could not sign"):
        signing.sign(text, keys / "nowhere", path)


def test_an_audit_of_nothing_is_one_line(tmp_path):
    assert Archive.of_scale("smoke", tmp_path).records == []
