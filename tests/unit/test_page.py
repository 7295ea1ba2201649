"""The page that is browsed: whatever names and labels hold, they come out as they are."""

import json
from html.parser import HTMLParser

from jinja2 import Environment, StrictUndefined
from ptq_dynamics.claims.formats import Number, Table
from ptq_dynamics.plan.paper_jobs import TEMPLATE

ODD = "</script><b a='1'>&amp; \"ü\" \u2028"


class Read(HTMLParser):
    """The text of all cells, the data of scripts, and what tags there are."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.tags, self.values, self.held = [], [], [], {}
        self.script = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.script = dict(attrs).get("id") if tag == "script" else None
        if tag in ("th", "td", "caption"):
            self.cells.append("")
            self.values.append(dict(attrs).get("data-value"))

    def handle_data(self, data):
        if self.script is not None:
            self.held[self.script] = json.loads(data)
            self.script = None
        elif self.cells:
            self.cells[-1] += data.strip("\n")


def test_odd_words_come_out_as_they_are_and_numbers_as_exact_as_they_are():
    points = {"heads": ["segment", ODD], "rows": [["a", ODD]]}
    about = {"name": "fig04", "title": ODD, "caption": ODD, "manifest": "m", "picture": ""}
    shown = Table(ODD, [ODD, "n"], [[ODD, Number(1 / 3, 0.1)], ["all", 12345], [None, "x"]])
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text = environment.from_string(TEMPLATE.read_text()).render(
        description=ODD,
        made=ODD,
        figures=[{**about, "points": points}],
        claims=[],
        forest="",
        tables=[shown],
        cost=Table("t", ["k"], []),
        held={"jobs": {ODD: [1, None]}},
    )
    found = Read(text)
    cells = [ODD, ODD, "n", ODD, "0.33 ± 0.10", "all", "12,345", ""]
    assert found.cells[: len(cells)] == cells and "b" not in found.tags
    assert found.values[4] == repr(1 / 3) and found.values[6] == "12345"
    assert found.held["points-fig04"] == {**points, "manifest": "m", "title": ODD}
    assert found.held["held"] == {"jobs": {ODD: [1, None]}}
