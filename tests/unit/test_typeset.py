"""What the text of the paper is told, and what is said where it cannot be typeset."""

import json
import re
import shutil

import pytest
from ptq_dynamics.config.loading import scales
from ptq_dynamics.paper.typeset import compiled
from support import ROOT, one_line, plan

pytestmark = pytest.mark.slow

FIRST = {"says": "a ratio", "unit": "", "value": 2.0684, "low": 1.3, "high": 3.81}
ALONE = {"says": "a distance", "unit": "", "value": 1.5}
OPEN = {"says": "over a small divisor", "unit": "", "value": 3.0, "low": 1.2}
JUDGED = {
    "claims": [
        {"name": "a", "outcome": "agrees", "figures": ["fig04"], "rows": [FIRST, ALONE]},
        {"name": "b", "outcome": "not measured", "figures": ["fig04"], "rows": []},
        {"name": "c", "outcome": "agrees", "figures": ["fig04"], "rows": [OPEN]},
    ]
}
TABLE = (
    'Curve,Trajectory,Tokens,"Loss, end","Loss, end (error)",Empty,Empty (error)\n'
    "Stable,rainbow-172,48640,3.25,0.012,,\n"
    "Decay,rainbow-138,1000,,,,\n"
)
MACHINE = ["CPU", "Linux", "2 cores", "cpu"]
RECORD = {"identity": "ab" * 32, "commit": "c+", "accepted": False, "tokens": 12, "kind": "train"}
RECORD |= {"seconds": 3600, "cpu_seconds": 7200, "gpus": 0, "peak_memory": 2**30}


@pytest.fixture
def text_of(tmp_path):
    """A text of a few lines, with the functions of the paper's."""
    folder = tmp_path / "text"
    folder.mkdir()
    shutil.copy2(ROOT / "paper/lib.typ", folder)
    data = {"scale": {"description": "smoke scale"}, "unknown": 0, "trained": "12"}
    data |= {"numbers": {"runs.a.peak-rate": "3e-3", "scale.steps": 190000}, "figures": {}}
    data |= {"measured": {"values": 7}, "tables": {"headline": "A title"}}
    data |= {"records": {"x": {**RECORD, "machine": MACHINE}}, "inputs": {"claims": "x"}}
    (folder / "data.json").write_text(json.dumps(data))
    (folder / "claims.json").write_text(json.dumps(JUDGED))
    (folder / "tables").mkdir()
    (folder / "tables/headline.csv").write_text(TABLE)
    return folder


def typeset(folder, line, timestamp=1_700_000_000):
    (folder / "paper.typ").write_text(f'#import "lib.typ": *\n\n{line}\n')
    return compiled(folder, timestamp)


def test_equal_text_gives_equal_bytes_wherever_it_lies(text_of, tmp_path):
    line = '#num("figures.all"); $x^2$; `raw`; #cell("headline", "rainbow-172", "Loss, end")'
    other = shutil.copytree(text_of, tmp_path / "another place" / "text")
    made = typeset(text_of, line)
    assert made.startswith(b"%PDF") and made == typeset(other, line)
    assert made != typeset(text_of, line, timestamp=1_700_000_001)
    assert str(tmp_path).encode() not in made


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("shown(0.01234, 0.00056)", "0.01234 ± 0.00056"),
        ("shown(-0.000041, 0.0000023)", "(−4.10 ± 0.23)·10⁻⁵"),
        ("whole(1234567)", "1,234,567"),
        ('ratio("a")', "2.07 [1.3, 3.81]"),
        ('ratio("c")', "3 [1.2, ∞]"),
        ('num("runs.a.peak-rate")', "3·10⁻³"),
        ('num("claims.not-measured")', "1"),
        ('num("records.dirty")', "1"),
        ('cell("headline", "rainbow-172", "Loss, end")', "3.250 ± 0.012"),
        ('cell("headline", "rainbow-138", "Loss, end", may-be-empty: true)', "–"),
    ],
)
def test_numbers_are_shown_with_their_errors_and_powers(text_of, shown, text):
    typeset(
        text_of,
        f"#assert({shown} == {json.dumps(text, ensure_ascii=False)}, message: repr({shown}))",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('#num("claims.al")', ['"claims.al" is no key of numbers', "claims.all"]),
        ('#cell("headlin", "a", "b")', ['"headlin" is no key of tables', "headline"]),
        ('#cell("headline", "a", "Loss, end")', ['"a" is no key of table headline']),
        (
            '#cell("headline", "rainbow-138", "Loss, end")',
            ['"headline", "rainbow-138", "Loss, end": this cell has no value'],
        ),
        ("#num(", ["unclosed delimiter"]),
        ('#set text(font: "No Such Font")\nx', ["no such font"]),
    ],
)
def test_what_cannot_be_typeset_is_told_in_one_line(text_of, line, words):
    with one_line("paper/paper.typ:3: ", *words):
        typeset(text_of, line)


@pytest.mark.parametrize("scale", scales(ROOT / "config"))
def test_numbers_that_the_text_cites_of_the_configuration_are_there_at_every_scale(scale):
    """And it says of each figure of the paper why it is not drawn."""
    few = plan(scale, figures=["fig04"]).paper.typeset().settings.contents["figures"]
    assert few["fig06"]["missing"] == "it was not chosen for this build"
    told = plan(scale).paper.typeset().settings
    figures = told.contents["figures"]
    written = plan("smoke").site.config.figures.items()
    assert [*figures] == [*few] == [name for name, figure in written if figure.group is None]
    numbers = told.contents["numbers"]
    texts = [path.read_text() for path in ROOT.glob("paper/**/*.typ")]
    cited = {key for text in texts for key in re.findall(r'\bnum\("([^"]+)"\)', text)}
    own = {key for key in cited if key.split(".")[0] in ("scale", "models", "runs", "quantizers")}
    published = {key for key in cited if key.startswith("paper.")}
    assert len(own) > 15 and len(published) > 5
    assert [key for key in own | published if key not in numbers] == []
    real = scale in ("node", "paper")
    assert told.contents["scale"]["miniatures"] != real
    missing = {n: e["missing"] for n, e in figures.items() if e["missing"]}
    assert [*missing] == (["fig11", "fig15", "fig23"] if real else [])
    assert all(re.fullmatch(r"\w+ scale leaves out .+ \(.+\)", why) for why in missing.values())
