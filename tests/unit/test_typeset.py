"""What the text of the paper is told, and what is said where it cannot be typeset."""

import json
import re
import shutil

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import scales
from ptq_dynamics.engine import manifest
from ptq_dynamics.paper import judged, measured, sources, tabulated
from ptq_dynamics.paper.diagnostics import explained
from ptq_dynamics.paper.numbers import powers, short, shown, whole
from ptq_dynamics.paper.typeset import compiled, picture
from support import ROOT, edit_yaml, plan

NAMES = ["numbers", "figures", "claims", "tables"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.01234, 0.00056, "0.01234 ± 0.00056"),
        (-1.5, None, "−1.5"),
        (1.2e-5, 3.4e-6, "(1.20 ± 0.34)·10⁻⁵"),
        (2.5e7, None, "2.5·10⁷"),
        (None, None, "–"),
        (float("nan"), None, "–"),
    ],
)
def test_numbers_have_their_errors_and_powers(value, error, text):
    assert shown(value, error) == text


def test_short_numbers_have_three_digits():
    assert [short(each) for each in (0.25494, 1234.5, -0.5, None)] == [
        "0.255",
        "1.23·10³",
        "−0.5",
        "–",
    ]
    assert whole(1234567) == "1,234,567"
    # A name with a power of ten in it is none.
    assert powers("wsd-3e-3, 3e-3") == "wsd-3·10⁻³, 3·10⁻³"


def inequality(verdict, **numbers):
    said = {"says": "one", "figure": "fig04", "quantizer": "gptq-4bit", "is": "above"}
    said |= {"times": 1.0, "tolerance": 0.0, "because": None, "published": None, "verdict": verdict}
    return said | numbers


def claim(name, *inequalities, **others):
    said = {"name": name, "number": 1, "says": "Words", "about": []}
    return {**said, "verdict": inequalities[0]["verdict"], "inequalities": inequalities, **others}


MEASURED = {
    "published": {"left": 2.0, "right": 1.0, "ratio": 2.0},
    "left": {"value": 0.0084, "stderr": 0.0002},
    "right": {"value": 0.0041, "stderr": 0.0001},
    "ratio": 2.04878,
    "effect": 0.0043,
    "error": 0.00021,
    "smallest_effect": 0.00042,
    "seeds": [1, 2, 3],
}
JUDGED = {
    "claims": [
        claim("a", inequality("reproduced", **MEASURED), inequality("inconclusive", **MEASURED)),
        claim("b", inequality("not measured", why="it is not"), about=["miniature of SmolLM3-3B"]),
    ]
}


def test_claims_are_counted_and_both_sides_told():
    numbers = judged.numbers(JUDGED)
    assert (numbers["claims.all"], numbers["claims.reproduced"]) == ("2", "1")
    assert numbers["claims.not-measured"] == "1" and numbers["claims.inconclusive"] == "0"
    assert (numbers["inequalities.all"], numbers["inequalities.inconclusive"]) == ("3", "1")
    assert numbers["claims.a.0.left"] == "0.00840 ± 0.00020"
    assert numbers["claims.a.1.effect"] == "0.00430 ± 0.00021"
    assert numbers["claims.a.0.smallest"] == "0.00042"
    assert not [key for key in numbers if key.startswith("claims.b.")]
    assert numbers["inequalities.of-one-seed"] == numbers["inequalities.without-error"] == "0"
    told = judged.claims(JUDGED)
    assert told["a"]["inequalities"][0]["seeds"] == "3"
    assert told["b"]["about"] == ["SmolLM3-3B"]
    assert told["b"]["inequalities"][0]["why"] == "it is not"
    assert told["a"]["counts"]["reproduced"] == told["a"]["counts"]["inconclusive"] == 1


def test_what_rests_on_one_seed_or_has_no_error_is_counted():
    alone = {**MEASURED, "seeds": [1], "error": None, "smallest_effect": None}
    found = {"claims": [claim("a", inequality("inconclusive", **alone, why="no error is known"))]}
    numbers = judged.numbers(found)
    assert (numbers["inequalities.of-one-seed"], numbers["inequalities.without-error"]) == (
        "1",
    ) * 2
    assert numbers["claims.a.0.smallest"] == "–" and numbers["claims.a.0.effect"] == "0.0043"
    assert judged.claims(found)["a"]["inequalities"][0]["why"] == "no error is known"


def test_tables_are_read_as_they_are_shown():
    text = (
        'Curve,Trajectory,Tokens,"Loss, end","Loss, end (error)",'
        '"4-bit error (%), end","4-bit error (%), end (error)"\n'
        "Stable,constant-3e-3,48640,3.25,0.012,,\n"
        "Decay,rainbow-172,1000,3.5,,,\n"
    )
    with_gap = text + "Decay,rainbow-138,,nan,,,\n"
    assert tabulated.table(with_gap, "x.csv").rows[-1] == ["Decay", "rainbow-138", None, None]
    found = tabulated.table(text, "x.csv")
    assert found.heads == [("", "Curve"), ("", "Trajectory"), ("", "Tokens"), ("end", "Loss")]
    assert found.numeric == [False, False, True, True]
    assert found.rows == [
        ["Stable", "constant-3e-3", "48,640", "3.250 ± 0.012"],
        ["Decay", "rainbow-172", "1,000", "3.5"],
    ]
    with pytest.raises(Problem, match=r"x\.csv is empty"):
        tabulated.table("", "x.csv")


def test_measurements_are_counted():
    head = "trajectory,seed,quantizer,checkpoint_id,metric,value"
    rows = ["a,1,fp,x,loss,3", "a,1,fp,y,loss,3", "a,2,q,x,loss,3", "b,1,fp,x,loss,3"]
    numbers = measured.numbers("\n".join([head, *rows, ""]))
    assert numbers["measured.values"] == "4" and numbers["measured.trajectories"] == "2"
    assert numbers["measured.runs"] == "3" and numbers["measured.checkpoints"] == "4"
    assert numbers["measured.degradations"] == "0"


def test_degradations_beyond_their_errors_are_counted():
    head = "trajectory,seed,quantizer,checkpoint_id,metric,value,stderr"
    ends = ["0.05,0.02", "-0.05,0.02", "0.03,0.02", "0,0", ",", "0.3,"]
    rows = [f"a,1,q,x,accuracy_degradation,{end}" for end in ends]
    numbers = measured.numbers("\n".join([head, *rows, "a,1,q,x,accuracy,0.5,0.01", ""]))
    assert numbers["measured.degradations"] == "4"
    assert numbers["measured.degradations-beyond"] == "2"


def test_a_diagnostic_names_the_place_in_the_text_and_the_nearest_key(tmp_path):
    told = (
        f"error\n  ┌─ {tmp_path}/lib.typ:6:2\n\nhelp: while calling `num`\n"
        f"  ┌─ {tmp_path}/sections/front.typ:42:7\n"
    )
    message = 'assertion failed: "claims.al" is no key of numbers'
    assert explained(told, message, tmp_path, ["claims.all", "figures.all"]) == (
        'paper/sections/front.typ:42: "claims.al" is no key of numbers; is claims.all meant?'
    )
    assert explained("", "it is odd", tmp_path) == "paper: it is odd"


@pytest.fixture
def text(tmp_path):
    """A text of a few lines, with the functions of the paper's."""
    folder = tmp_path / "text"
    folder.mkdir()
    shutil.copy2(ROOT / "paper/lib.typ", folder)
    data = {name: {} for name in NAMES} | {"scale": {"description": "smoke scale"}}
    data["numbers"] = {"figures.drawn": "3", "claims.a.0.ratio": "–"}
    data["tables"] = {
        "headline": {
            "heads": [["", "Trajectory"], ["end", "Loss"]],
            "rows": [["rainbow-172", "3.5"], ["rainbow-138", None]],
        }
    }
    (folder / "data.json").write_text(json.dumps(data))
    return folder


def typeset(folder, line, timestamp=1_700_000_000):
    (folder / "paper.typ").write_text(f'#import "lib.typ": *\n\n{line}\n')
    return compiled(folder, timestamp)


def test_equal_text_gives_equal_bytes_wherever_it_lies(text, tmp_path):
    line = (
        '#num("figures.drawn") figures; $x^2$; `raw`; #cell("headline", "rainbow-172", "Loss, end")'
    )
    other = shutil.copytree(text, tmp_path / "another place" / "text")
    made = typeset(text, line)
    assert made.startswith(b"%PDF") and made == typeset(other, line)
    assert made != typeset(text, line, timestamp=1_700_000_001)
    assert str(tmp_path).encode() not in made


def test_what_may_be_empty_is_a_dash(text):
    cited = ('num("claims.a.0.ratio"', 'cell("headline", "rainbow-138", "Loss, end"')
    for call in cited:
        assert typeset(text, f'#assert({call}, may-be-empty: true) == "–")').startswith(b"%PDF")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('#num("figures.dran")', ['"figures.dran" is no key of numbers', "figures.drawn meant?"]),
        ('#cell("headlin", "a", "b")', ['"headlin" is no key of tables', "headline meant?"]),
        ('#cell("headline", "a", "Loss, end")', ['"a" is no key of table headline']),
        ('#cell("headline", "rainbow-172", "Loss")', ['"Loss" is no key of the columns']),
        ('#num("claims.a.0.ratio")', ['"claims.a.0.ratio" has no value']),
        (
            '#cell("headline", "rainbow-138", "Loss, end")',
            ['"headline", "rainbow-138", "Loss, end": this cell has no value'],
        ),
        ("#num(", ["unclosed delimiter"]),
        ('#set text(font: "No Such Font")\nx', ["no such font"]),
    ],
)
def test_what_cannot_be_typeset_is_told_in_one_line(text, line, words):
    with pytest.raises(Problem) as told:
        typeset(text, line)
    message = str(told.value)
    assert message.startswith("paper/paper.typ:3: ") and "\n" not in message
    assert [word for word in words if word not in message] == []


def test_a_text_that_was_edited_since_it_was_planned_is_refused(tmp_path):
    folder = shutil.copytree(ROOT / "paper", tmp_path / "paper")
    planned = sources.find(tmp_path)
    assert {"paper.typ", "lib.typ", "sections/results.typ"} <= {each.name for each in planned}
    sources.copy(planned, tmp_path, tmp_path / "copy")
    (folder / "lib.typ").write_text("// Others.\n")
    with pytest.raises(Problem, match=r"paper/lib\.typ was edited"):
        sources.copy(planned, tmp_path, tmp_path / "another")
    (folder / "paper.typ").unlink()
    with pytest.raises(Problem, match=r"paper/paper\.typ is missing"):
        sources.find(tmp_path)


def test_the_place_of_a_figure_is_found(tmp_path):
    section = tmp_path / "paper/sections/results.typ"
    section.parent.mkdir(parents=True)
    section.write_text('= Results\n\n#fig("fig04")\n#fig("fig041")\n')
    assert sources.places(tmp_path, "fig04") == ["paper/sections/results.typ:3"]
    assert sources.places(tmp_path, "fig05") == []


def test_a_picture_that_is_gone_is_told_with_the_place_that_shows_it(tmp_path):
    (tmp_path / "fig04.pdf").write_bytes(b"%PDF-")
    made = manifest.describe(tmp_path, tmp_path / "fig04.manifest.json", {})
    (tmp_path / "fig04.pdf").unlink()
    words = r'paper/sections/results\.typ:\d+: #fig\("fig04"\): .*fig04\.pdf is missing'
    with pytest.raises(Problem, match=words):
        picture(made, "fig04")


def config(tmp_path):
    return shutil.copytree(ROOT / "config", tmp_path / "config")


@pytest.fixture(scope="module")
def settings():
    """Of the paper of scale smoke with all figures."""
    return plan("smoke").typeset(ROOT / "config").settings


def test_numbers_of_the_configuration_are_those_of_the_plan(settings):
    numbers, smoke = dict(settings.numbers), plan("smoke")
    scale, run = smoke.site.config.scale, smoke.site.config.runs.runs["constant-3e-3"]
    assert numbers["scale.steps"] == str(scale.budget)
    blocks = scale.evaluation.blocks
    assert numbers["scale.validation-tokens"] == f"{blocks * scale.models['main'].context:,}"
    assert numbers["models.main.width"] == str(scale.models["main"].width)
    trained = run.trained(smoke.site.timeline)
    assert numbers["runs.constant-3e-3.batch-tokens"] == f"{trained.batch * trained.context:,}"
    assert numbers["runs.constant-3e-3.peak-rate"] == "3·10⁻³"
    assert numbers["paper.scale.steps"] == "190,000"
    assert numbers["paper.runs.constant-3e-3.batch-tokens"] == "524,288"
    assert numbers["paper.runs.constant-3e-3.tokens"] == "99.6B"
    assert len(numbers) == len(settings.numbers)


def test_the_regime_is_told_beside_the_published_one(settings):
    rows = {row.run: dict(zip(settings.columns, row.cells, strict=True)) for row in settings.regime}
    cell = rows["constant-3e-3"]["tokens_per_parameter"]
    assert cell.unlike and cell.theirs == pytest.approx(614, rel=0.01)
    assert rows["constant-3e-3"]["cooldown"].mine == 0
    assert rows["constant-3e-3"]["tokens"].mine == 190 * 8 * 32


def test_all_figures_are_told_and_why_some_are_not_drawn(tmp_path):
    folder = config(tmp_path)
    edit_yaml(
        folder / "scales/smoke.yaml",
        lambda found: found["regime"].update(left_out={"amber": "it is too long"}),
    )
    told = plan("smoke", folder, figures=["fig04"]).typeset(folder).settings
    missing = {each.name: each.missing for each in told.figures}
    assert [*missing] == [*plan("smoke").site.config.figures]
    assert missing["fig04"] is None
    assert missing["fig06"] == "it was not chosen for this build"
    assert missing["fig12"] == "smoke scale leaves out amber (it is too long)"


def test_what_the_paper_needs_is_all_that_it_shows():
    few = plan("smoke", figures=["fig04", "fig06"]).typeset(ROOT / "config")
    assert {*few.inputs} == {"figure fig04", "figure fig06", "claims", "tables", "measurements"}
    assert few.outputs == ["paper/smoke/paper.pdf", "paper/smoke/data.json"]
    assert {each.name for each in few.settings.sources} == {
        path.relative_to(ROOT / "paper").as_posix()
        for path in [*ROOT.glob("paper/*.typ"), *ROOT.glob("paper/sections/*.typ")]
    }


@pytest.mark.parametrize("scale", scales(ROOT / "config"))
def test_numbers_that_the_text_cites_of_the_configuration_are_there_at_every_scale(scale):
    told = plan(scale).typeset(ROOT / "config").settings
    numbers, texts = dict(told.numbers), [path.read_text() for path in ROOT.glob("paper/**/*.typ")]
    cited = {key for text in texts for key in re.findall(r'\bnum\("([^"]+)"\)', text)}
    own = {key for key in cited if key.split(".")[0] in ("scale", "models", "runs", "quantizers")}
    published = {key for key in cited if key.startswith("paper.")}
    assert len(own) > 15 and len(published) > 5
    assert [key for key in own | published if key not in numbers] == []
    assert told.miniatures == (scale != "paper")
    missing = {each.name: each.missing for each in told.figures if each.missing}
    assert [*missing] == (["fig11", "fig15", "fig23"] if scale == "paper" else [])
    assert all(re.fullmatch(r"paper scale leaves out .+ \(.+\)", why) for why in missing.values())


def test_the_text_places_every_figure_claim_and_table():
    """The paper places what is in none of its sections at the end; ours are in one."""
    text = "".join(path.read_text() for path in sorted(ROOT.glob("paper/sections/*.typ")))
    site = plan("smoke").site.config
    missing = [
        *(name for name in site.figures if f'#fig("{name}")' not in text),
        *(name for name in site.claims if f'#claim("{name}")' not in text),
        *(name for name in site.tables if f'#table-of("{name}")' not in text),
    ]
    # Claims stand beside figures, in place of the table of all.
    assert missing == ["claims"]
