"""The page that is browsed: whatever names and labels hold, they come out as they are."""

import json

from jinja2 import Environment, StrictUndefined
from lxml import html
from ptq_dynamics.claims.formats import Number, Table
from ptq_dynamics.plan.paper_jobs import TEMPLATE

ODD = "</script><b a='1'>&amp; \"ü\" \u2028"


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
    page = html.fromstring(text)
    cells = page.xpath("//caption | //th | //td")
    expected = [ODD, ODD, "n", ODD, "0.33 ± 0.10", "all", "12,345", ""]
    assert [each.text_content().strip("\n") for each in cells[: len(expected)]] == expected
    assert not page.xpath("//b")
    assert [cells[place].get("data-value") for place in (4, 6)] == [repr(1 / 3), "12345"]
    held = {each.get("id"): json.loads(each.text) for each in page.xpath("//script[@id]")}
    assert held["points-fig04"] == {**points, "manifest": "m", "title": ODD}
    assert held["held"] == {"jobs": {ODD: [1, None]}}
