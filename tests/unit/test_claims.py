"""Claims: the paper's own numbers agree with them, and intervals hold what they should."""

import itertools
import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from drawing import check_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from ptq_dynamics.claims import judge
from ptq_dynamics.claims.bootstrap import REPLICATES, Bootstrap, weights
from ptq_dynamics.claims.controlled import (
    CONTROLLED,
    HORIZONS,
    LATER,
    Q3,
    Q4,
    RAINBOW,
    RATES,
    STABLE,
)
from ptq_dynamics.claims.definitions import ClaimAtScale, ClaimsSettings, Row
from ptq_dynamics.claims.forest import MARKS, forest
from ptq_dynamics.claims.judge import judged
from ptq_dynamics.claims.public import PUBLIC
from ptq_dynamics.claims.samples import Samples
from ptq_dynamics.cli import maintainers
from ptq_dynamics.figures.labels import ShownRun
from ptq_dynamics.measure.series import Series
from support import ROOT

BLOCKS = 64
SEEDS = (1,)


def series(name, quantizer, seed):
    return Series(name, seed, "controlled", quantizer, "gptq", 4, 128)


@dataclass
class Points:
    """Losses in full precision, and errors by quantizer, of checkpoints at some tokens."""

    tokens: list
    losses: list
    errors: dict
    trunk: str | None = None


class Made(Bootstrap):
    """Made-up points, with some chance in every error, and blocks that differ alike."""

    def __init__(self, points, jitter=0.02, seeds=SEEDS, chance=0, draws=None):
        both = [*itertools.product(points.items(), seeds)]
        every = [
            series(name, quantizer, seed)
            for (name, each), seed in both
            for quantizer in ("fp", *((draws or {}).get(e, [e])[0] for e in each.errors))
        ]
        runs = [ShownRun(f"run {n} seed {s}", n, s, p.trunk, 0, None) for (n, p), s in both]
        super().__init__(every, runs, draws or {}, {})
        self.points, self.jitter, self.chance = points, jitter, chance

    def blocks(self, series):
        found = self.points[series.trajectory]
        words = f"{series.trajectory} {series.quantizer} {series.seed} {self.chance}"
        random = np.random.default_rng([*words.encode()])
        losses = np.array(found.losses)[:, None] + np.linspace(-0.5, 0.5, BLOCKS)
        if series.quantizer != "fp":
            (name,) = (e for e in found.errors if series.quantizer in self.sets(e))
            errors = np.array(found.errors[name])
            errors = errors * (1 + self.jitter * random.standard_normal(len(errors)))
            losses = losses * (1 + errors[:, None])
        steps = np.array(found.tokens)
        rows = pd.DataFrame({"id": [*map(str, steps)], "step": steps, "tokens": steps})
        return rows, losses


def published():
    """What was read off the paper's figures 1, 4, 6 and 7 (billions of tokens, nats, shares)."""
    at = [4, 10, 20, 30, 37, 46, 55, 64, 70, 76, 82, 88, 94, 100]
    error = np.interp(at, [4, 10, 20, 37, 55, 90], [3.9e-3, 4.1e-3, 4.7e-3, 5.1e-3, 5.4e-3, 5.5e-3])
    found = {STABLE: Points(at, [3.65] * len(at), {Q4: error, Q3: [2.8e-2] * len(at)})}
    ends = zip((10, 28, 46, 64, 82, 100), (8.4, 9.2, 9.0, 9.1, 9.3, 9.4), strict=True)
    for name, (end, high) in zip(RAINBOW, ends, strict=True):
        low = float(np.interp(end - 6, at, error))
        down = [end - 6, end - 4, end - 2, end]
        errors = [*np.linspace(low, high * 1e-3, 4)]
        found[name] = Points(down, [3.65, 3.55, 3.5, 3.42], {Q4: errors}, STABLE)
    rates = (
        (3.428, 1.87e-2, 9.9e-2, 1.32e-2, 7.3e-2),
        (3.405, 1.48e-2, 7.6e-2, 1.05e-2, 5.4e-2),
        (3.406, 1.08e-2, 5.9e-2, 0.80e-2, 4.2e-2),
        (3.460, 0.89e-2, 4.4e-2, 0.71e-2, 3.9e-2),
    )
    for name, (loss, four, three, at_350, three_350) in zip(RATES, rates, strict=True):
        errors = {Q4: [at_350 * 0.9, at_350, four], Q3: [three_350 * 0.9, three_350, three]}
        found[name] = Points([80, 90, 100], [3.55, 3.50, loss], errors)
    found["lawa-20"] = Points([80, 90, 100], [3.5, 3.495, 3.49], {Q3: [2e-2, 2e-2, 2e-2]})
    errors = {Q3: [4.7e-2, 6e-2, 7.5e-2, 9.1e-2], Q4: [0.95e-2, 1.2e-2, 1.5e-2, 1.82e-2]}
    found["smollm3-decay"] = Points([70, 80, 90, 100], [2.72, 2.68, 2.64, 2.61], errors)
    return found


TESTED = ("rise-in-decay", "budget-independence", "peak-rate", "averaging", "distance", "smollm3")
TESTED += ("schedule-or-tokens",)


# Of curvature and gradients nothing was read off.
ELSE = dict.fromkeys(("adamc", "curvature", "flatness"), "not read off")


def asked(seeds=SEEDS, **others):
    why, every = {**ELSE, **others}, (*CONTROLLED, *PUBLIC)
    words = {claim.name: {"says": claim.says, "unmeasured": why.get(claim.name)} for claim in every}
    told = {name: ClaimAtScale(seeds=seeds, **words[name]) for name in words}
    rates = dict(zip(RATES, (3e-4, 1e-3, 3e-3, 1e-2), strict=True))
    tokens = dict(zip(RAINBOW, (10, 28, 46, 64, 82, 100), strict=True))
    numbers = {"peak_lr": rates, "tokens": tokens}
    return ClaimsSettings(claims=told, figures={}, scale="paper", numbers=numbers)


def judge_all(told, points, **others):
    """All claims by name; each reads curves of its own."""
    return {each["name"]: each for each in judged(told, lambda _: Made(points, **others))}


@pytest.fixture(scope="module")
def of_paper():
    return judge_all(asked(), published())


def test_what_the_paper_shows_agrees_with_what_it_says(of_paper):
    """Values were read off plots to 2 %."""
    found = of_paper
    outcomes = {name: found[name]["outcome"] for name in TESTED}
    assert outcomes == dict.fromkeys(TESTED, "agrees")
    assert found["constant-rate"]["outcome"] == "agrees"
    rows = [row for name in TESTED for row in found[name]["rows"] if "value" in row]
    for row in rows:
        if row["published"] is not None:
            assert row["value"] == pytest.approx(row["published"], rel=0.1, abs=0.02), row["says"]
    # What was not read off is not measured, for a reason.
    assert found["kumar"]["outcome"] == "not measured" and "kumar" in found["kumar"]["why"]


def test_a_claim_that_is_false_is_opposed_and_noise_leaves_it_open():
    points = published()
    for name in LATER:
        points[name].errors[Q4] = [5.5e-3, 4.5e-3, 3.5e-3, 2.5e-3]
    found = judge_all(asked(), points)
    assert found["rise-in-decay"]["outcome"] == "opposes"
    vague = judge_all(asked(), published(), jitter=3.0)
    assert vague["rise-in-decay"]["outcome"] == "unresolved"


def test_the_plot_of_two_scales_matches_claims_by_their_names(of_paper):
    every = [*of_paper.values()]
    (ax,) = forest({"a": every, "b": every[:0:-1]}).axes
    ours = [text.get_text() for text in ax.get_yticklabels()]
    tested = [claim for claim in every if claim["outcome"] in MARKS]
    # A claim of both scales has two rows, the first claim one, and an untested one none.
    assert ours[1:3] == [f"{CONTROLLED[0].short}  1", f"{CONTROLLED[1].short}  2"]
    assert ours.count("at b") == len(tested) - 1
    outcomes = [text.get_text() for text in ax.texts]
    assert len(outcomes) == 2 * len(tested) - 1 and {*outcomes} <= {*MARKS}


@pytest.mark.parametrize("jitter", [0.02, 3.0])
def test_the_interval_that_decides_excludes_one_if_the_claim_is_resolved(jitter):
    every = [each for each in judge_all(asked(), published(), jitter=jitter).values()]
    tested = [each for each in every if each["expected"] != "alike" and "decides" in each]
    assert len(tested) > 4
    for claim in tested:
        low, high = claim["decides"]
        assert (low > 1 or high < 1) == (claim["outcome"] != "unresolved"), claim["name"]
        first = claim["rows"][0]
        # Corrected for other tests, it is wider than the interval of 95 %.
        assert low <= first["low"] and first.get("high", high) <= high


def test_the_plot_names_untested_claims_and_no_text_hides_another(of_paper):
    nothing = [{**claim, "outcome": "not measured", "rows": []} for claim in of_paper.values()]
    notes = forest({"a": nothing}).get_supxlabel().replace("\n", " ")
    assert all(claim.short in notes for claim in CONTROLLED)
    check_texts(forest({"a": [*of_paper.values()]}))


@pytest.mark.parametrize(("decay", "twice"), [(1.5, 1.2), (1.1, 1.4)])
def test_the_headline_compares_decay_with_twice_the_tokens(decay, twice):
    """Errors that grow by one factor with the tokens, and by another in decay."""
    at = [4, 10, 28, 46, 64, 82, 100]
    stable = [1e-2 * twice ** np.log2(tokens / 50) for tokens in at]
    points = {STABLE: Points(at, [3.6] * 7, {Q4: stable})}
    for name, end, error in zip(RAINBOW, at[1:], stable[1:], strict=True):
        points[name] = Points([end - 6, end], [3.6, 3.4], {Q4: [error, decay * error]}, STABLE)
    found = judge_all(asked(), points, jitter=0.005)["schedule-or-tokens"]
    assert found["rows"][0]["value"] == pytest.approx(decay / twice, rel=0.02)
    assert found["outcome"] == ("agrees" if decay > twice else "opposes")


def test_horizons_of_few_tokens_do_not_count():
    names = [f"cosine-{horizon}-{rate}" for horizon in HORIZONS for rate in ("6e-4", "3e-3")]
    tokens = {name: float(name[7:10]) for name in names}
    settings = asked()
    settings.numbers["peak_lr"].update({name: float(name[11:]) for name in names})
    settings.numbers["tokens"].update(tokens)
    settings.numbers["tokens_per_parameter"] = {name: n / 4 for name, n in tokens.items()}
    points = {}
    for name in names:
        # A tenfold rate halves the error and a tenfold horizon triples it, but for the shortest.
        rate, horizon = np.log10(float(name[11:]) / 6e-4), np.log10(tokens[name] / 190)
        error = 1e-2 * 2**-rate * 3**horizon * (0.01 if tokens[name] == 20 else 1)
        points[name] = Points([1, 2, tokens[name]], [3.6, 3.5, 3.4], {Q4: [error] * 3})
    effects, rate, horizon, *_ = judge_all(settings, points, jitter=1e-3)["cosine"]["rows"]
    values = [effects["value"], rate["value"], horizon["value"]]
    assert values == pytest.approx([2 / 3, 1 / 2, 3], rel=0.02)


def test_a_divisor_that_may_be_zero_leaves_an_interval_without_an_upper_end(
    tmp_path, monkeypatch, capsys
):
    noise = np.random.default_rng(1).standard_normal((2, REPLICATES))
    noise[:, 0] = 0
    above, under = 3 + 0.1 * noise[0], 0.5 + 0.4 * noise[1]
    row = judge._measured(Row("", Samples.ratio(above, under)), [])
    assert row["value"] == 6 and row["low"] == pytest.approx(2.3, rel=0.1) and "high" not in row
    assert "no upper end" in row["why"]
    sure = judge._measured(Row("", Samples.ratio(above, above + 1)), [])
    assert sure["low"] < 0.75 < sure["high"]
    lost = judge._measured(Row("", Samples.ratio(0.5 + noise[0], under)), [])
    assert "low" not in lost and "divisor" in lost["why"]
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    claim = {"name": "some-claim", "number": 1, "outcome": "unresolved", "rows": [row]}
    (path := tmp_path / "results/smoke/claims.json").parent.mkdir(parents=True)
    path.write_text(json.dumps({"claims": [claim]}))
    assert maintainers.claims(scale="smoke")
    assert f"6.00 [{row['low']:.2f}, inf]" in capsys.readouterr().out


def test_higher_errors_may_come_with_a_lower_loss_after_quantization():
    points = published()
    for name in LATER:
        points[name].losses[-1] = 3.2
    rows = judge_all(asked(), points)["rise-in-decay"]["rows"]
    assert [row["outcome"] for row in rows if "outcome" in row] == ["lower"]
    for name in LATER:
        points[name].losses[-1] = 3.8
    rows = judge_all(asked(), points)["rise-in-decay"]["rows"]
    assert [row["outcome"] for row in rows if "outcome" in row] == ["higher"]


def test_seeds_needed_are_those_of_a_t_test():
    """At 5 %, an effect of one standard deviation needs 10, and of a half 34 (G*Power)."""
    half = 3**0.5 / 2
    for effect, count in ((1.0, 10), (0.5, 34)):
        logs = effect + np.array([-1, 1, -1, 1]) * half
        assert judge.seeds_needed([*np.exp(logs)], 0.05) == count
    assert judge.seeds_needed([1.3, -0.1, 1.2], 0.05) is None


def test_a_scale_may_call_a_quantizer_otherwise():
    """Scale paper has GPTQ by GPTQModel, under names of its own."""
    named = {Q4: ["gptqmodel-4bit"], Q3: ["gptqmodel-3bit"]}
    found = judge_all(asked(), published(), draws=named)
    assert {found[name]["outcome"] for name in TESTED} == {"agrees"}


def test_what_is_left_out_or_beyond_a_miniature_is_said():
    told = asked(smollm3="figure fig01 was not chosen")
    told.claims["post-training"] = ClaimAtScale(says="", seeds=SEEDS, miniatures=("SmolLM3",))
    found = judge_all(told, published())
    assert found["smollm3"]["why"] == "figure fig01 was not chosen"
    assert found["post-training"]["outcome"] == "not testable"


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Of a ratio of phase means, over made-up results with known errors."""
    held = 0
    for chance in range(30):
        read = Samples(Made(published(), jitter=0.2, chance=chance, seeds=(1, 2)), (1, 2))
        ratio = read.end(LATER, Q4) / read.over(STABLE, Q4)
        low, high = np.quantile(ratio[1:], [0.025, 0.975])
        held += low <= np.mean([9.2, 9.0, 9.1, 9.3, 9.4]) / 5.49 <= high
    assert 25 <= held <= 30


@settings(max_examples=8)
@given(st.integers(2, 40), st.text(max_size=5))
def test_weights_give_a_mean_its_own_variance(count, key):
    values = np.random.default_rng(count).standard_normal(count)
    mean = (values[:, None] * weights(key, count)).sum(axis=0)
    assert mean[0] == pytest.approx(values.mean())
    assert mean[1:].mean() == pytest.approx(values.mean(), abs=0.1 * values.std())
    expected = values.std(ddof=1) / count**0.5
    assert mean[1:].std() == pytest.approx(expected, rel=0.12)


def test_curves_are_read_along_lines_between_checkpoints():
    points = {
        "a": Points([0, 10, 20], [4.0, 3.0, 3.2], {Q4: [0.01, 0.02, 0.05]}),
        "b": Points([0, 15], [4.0, 3.1], {Q4: [0.01, 0.03]}),
    }
    read = Samples(Made(points, jitter=0, seeds=(1,)), (1,))
    assert read.at("a", Q4, end_of="b")[0] == pytest.approx(0.035)
    assert read.at("a", Q4, share=0.25)[0] == pytest.approx(0.015)
    # The worst ends at 3.2, which `a` had twice, and `b` at 13.3.
    assert read.at_loss("a", ("a", "b"), Q4)[0] == pytest.approx(0.05)
    assert read.at_loss("b", ("a", "b"), Q4)[0] == pytest.approx(0.01 + 0.02 * 0.8 / 0.9)
    assert np.isnan(read.at_loss("b", ("c",), Q4)).all()
    assert read.missing == ["loss of c is not measured at seed 1"]
    tenfold = read.tenfold({"x": 1.0, "y": 10.0, "z": 100.0}, [np.full(2, v) for v in (8, 4, 2)])
    assert tenfold[0] == pytest.approx(0.5)


def test_seeds_count_by_what_they_differ_beyond_the_noise_within():
    rng, held = np.random.default_rng(0), 0
    for chance in range(100):
        found = Samples(Made({}, chance=chance), (1, 2, 3))
        values = {seed: rng.normal() + 0.1 * rng.standard_normal(REPLICATES) for seed in (1, 2, 3)}
        low, high = np.quantile(found._over_seeds(values.__getitem__)[1:], [0.025, 0.975])
        held += low <= 0 <= high
    # Nineteen of twenty, as Student's t has it.
    assert 89 <= held <= 99
    # What is the same for all is no difference between them, and noise within is none.
    found = Samples(Made({}), (1, 2))
    same = {seed: np.append(1.0, 1.0 + rng.standard_normal(REPLICATES - 1)) for seed in (1, 2)}
    assert found._over_seeds(same.__getitem__)[1:].std() == pytest.approx(0.5**0.5, rel=0.05)


def test_single_checkpoints_have_the_error_that_seeds_show():
    points = {"a": Points([10], [3.0], {Q4: [0.05]})}
    one, three = (Samples(Made(points, 0.2, s), s).end("a", Q4)[1:] for s in ((1,), (1, 2, 3)))
    assert np.isnan(one).all() and 0.005 < np.subtract(*np.quantile(three, [0.84, 0.16])) < 0.05


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=8))
def test_tests_together_are_no_more_than_holm_allows(chances):
    """By its definition: the k-th smallest is compared with the level over all that are left."""
    tests = {str(at): (each, 1.0) for at, each in enumerate(chances)}
    found = {name: each == "agrees" for name, (each, _) in judge._holm(tests).items()}
    order = sorted(chances)
    bounds = [judge.LEVEL / (len(order) - k) for k in range(len(order))]
    passed = itertools.takewhile(lambda pair: pair[0] <= pair[1], zip(order, bounds, strict=True))
    assert sum(found.values()) == len([*passed])
