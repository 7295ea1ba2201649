"""Parts of the page that is browsed: markup, chains of records, thinned curves."""

import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.formats import Number, Table
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.report import assets, chain, drawn
from ptq_dynamics.report.markup import data, table
from ptq_dynamics.report.page import _read

ODD = "</script><b a='1'>&amp; \"ü\" \u2028"


class Read(HTMLParser):
    """The text of all cells, and what tags there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells, self.tags, self.values = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("th", "td", "caption"):
            self.cells.append("")
            self.values.append(dict(attrs).get("data-value"))

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data.strip("\n")


def test_cells_come_out_as_they_are_and_numbers_as_exact_as_they_are():
    shown = Table(ODD, [ODD, "n"], [[ODD, Number(1 / 3, 0.1)], ["all", 12345]])
    found = Read(table(shown, total=True))
    assert found.cells == [ODD, ODD, "n", ODD, "0.33 ± 0.10", "all", "12,345"]
    assert found.values[4] == repr(1 / 3) and found.values[6] == "12345"
    assert "b" not in found.tags and found.tags.count("tfoot") == 1


def test_no_text_ends_the_data_of_scripts():
    text = data("held", {"a": ODD, "b": [1.5, None]})
    inner = text.removeprefix('<script type="application/json" id="held">')
    inner = inner.removesuffix("</script>")
    assert not {*"<>&\u2028"} & {*inner}
    assert json.loads(inner) == {"a": ODD, "b": [1.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        data("held", float("nan"))


def test_errors_stand_with_their_values():
    heads = ["Curve", "Loss", "Loss (error)", "Tokens"]
    found = _read("t", heads, [["a", "3.5", "0.25", "512"], ["b", "", "", "x"]])
    assert found.heads == ["Curve", "Loss", "Tokens"]
    assert found.rows == [["a", Number(3.5, 0.25), 512], ["b", None, "x"]]


def result(folder: Path, files: dict[str, str]) -> Manifest:
    for name, text in files.items():
        (folder / name).write_text(text)
    found = manifest.describe(folder, folder / "manifest.json", {})
    found.path.write_text(found.text())
    return found


def test_columns_hold_numbers_gaps_and_words(tmp_path):
    rows = 'panel,curve,x,y\na,"one, <two>",1.5,0.1\na,2,nan,\nb,2,3,inf\n'
    found = drawn.table(result(tmp_path, {"fig.csv": rows}), "fig")
    assert found == [
        {"name": "panel", "words": ["a", "b"], "at": [0, 0, 1]},
        {"name": "curve", "words": ["one, <two>", "2"], "at": [0, 1, 1]},
        {"name": "x", "values": [1.5, None, 3.0]},
        {"name": "y", "values": [0.1, None, None]},
    ]
    looks = drawn.looks(found, ["not drawn", "Group: 2"])
    assert list(looks) == ["2", "one, <two>"]
    assert looks["2"]["color"] != looks["one, <two>"]["color"]


@pytest.mark.parametrize("count", [1, 149, 150, 151, 299, 1001])
def test_long_curves_are_thinned_evenly_to_their_end(tmp_path, count):
    lines = "".join(f"{n},{n * 10},2.123456789\n" for n in range(count))
    run = result(tmp_path, {"curve.csv": f"step,tokens,loss\n{lines}"})
    found = drawn.training([run])
    steps = found["step"]
    assert steps[-1] == count - 1 and len(steps) <= drawn.MOST
    assert len({b - a for a, b in pairwise(steps)}) <= 1
    assert found["tokens"] == [step * 10 for step in steps]
    assert {*found["loss"]} == {2.12346}


def test_what_was_not_trained_here_has_no_curve(tmp_path):
    assert drawn.training([result(tmp_path, {"model.txt": ""})]) is None


@pytest.fixture
def made(tmp_path, monkeypatch, workspace, trunk):
    """The job of a run, whose result lies with its corpus in the folder that this runs in."""
    job = workspace.plan.trajectories.train("trunk")
    for each in (job, workspace.plan.corpora.corpus("main")):
        shutil.copytree(workspace.folder / each.folder, tmp_path / each.folder)
    monkeypatch.chdir(tmp_path)
    return job


def test_a_chain_is_that_of_the_records_and_tells_what_has_none(made):
    top = manifest.read(made.paths.manifest)
    found = chain.follow([top])
    (corpus,) = made.needs
    assert list(found.results) == [corpus, made.manifest] and not found.missing
    content = chain.content(found)
    text, run = content["jobs"]
    account = found.results[made.manifest].record
    assert run["inputs"] == [0] and run["identity"] == account.identity
    assert (run["digest"], run["started"]) == (top.digest(), account.started)
    assert content["machines"][run["machine"]]["processor"] == account.machine.processor
    assert text["inputs"] == [] and text["stage"] == "corpus.corpus"
    Path(corpus).with_name("record.json").unlink()
    assert list(chain.follow([top]).missing) == [corpus]
    unknown = chain.content(chain.follow([top]))["jobs"][-1]
    assert unknown["manifest"] == corpus and "digest" not in unknown
    assert list(chain.follow([replace(top, facts={"other": 1})]).missing) == [made.manifest]


def test_scripts_and_styles_are_those_that_the_job_was_planned_with(tmp_path, monkeypatch):
    planned = tuple(assets.digests())
    assert set(assets.read(planned)) == {assets.STYLE, *assets.SCRIPTS}
    assert {path.name for path in assets.FOLDER.iterdir()} == {assets.STYLE, *assets.SCRIPTS}
    with pytest.raises(Problem, match=r"style\.css is not the file .* run snakemake again"):
        assets.read(((assets.STYLE, "0" * 64),))
    monkeypatch.setattr(assets, "FOLDER", tmp_path)
    with pytest.raises(Problem, match=r"style\.css cannot be read \(No such file"):
        assets.read(planned)
