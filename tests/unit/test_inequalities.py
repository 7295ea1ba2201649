"""Claims: what they may say, what their job reads, and that its numbers are those of the losses."""

import json
import shutil
from contextlib import chdir

import numpy as np
import pandas as pd
import pytest
import yaml
from drawing import Inputs
from ptq_dynamics.claims.estimates import Estimate
from ptq_dynamics.claims.judge import sides
from ptq_dynamics.claims.readings import NotMeasured, Terms
from ptq_dynamics.claims.settings import CLAIMS, Inequality, Term
from ptq_dynamics.config import load
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.graph import Plan
from ptq_dynamics.measure.names import FULL_PRECISION, LOSSES
from safetensors.numpy import load_file, save_file
from scipy.stats import spearmanr
from support import ROOT, one_line, specification
from support import plan as planned

pytestmark = pytest.mark.slow

STABLE = {"of": "constant-3e-3", "tokens_of": "rainbow-172"}
RISE = {"says": "rises", "quantizers": ["gptq-4bit"], "left": {"of": "rainbow-172"}}
RISE |= {"right": STABLE}


def claim(*inequalities, figure="fig04"):
    return {"says": "A claim", "figure": figure, "inequalities": list(inequalities)}


def one(**changes):
    return {key: value for key, value in {**RISE, **changes}.items() if value is not None}


def made(folder, choice=(), **claims):
    """The plan of a configuration with these claims alone."""
    shutil.copytree(ROOT / "config", folder / "config", dirs_exist_ok=True)
    (folder / "config/claims.yaml").write_text(yaml.safe_dump(claims, sort_keys=False))
    chosen = {"scale": "laptop", "seed": 100, "figures": "all", **dict(choice)}
    return Plan(load(chosen, folder / "config"), ROOT)


def judge(folder, plan, change=lambda: None):
    """What claims.json holds over made-up results, and its claims by name."""
    job = plan.claims.judge()
    Inputs(folder, plan).write(job)
    change()
    with chdir(folder):
        assert execute(specification(job)) == 0
    content = json.loads((folder / "results/laptop" / CLAIMS).read_text())
    return content, {each["name"]: each for each in content["claims"]}


# What is refused

PLACE = "mine.inequalities.0"
REFUSED = [
    (
        {"left": {"of": "rainbow-17"}},
        ["trajectory of figure fig04: 'rainbow-17'", "rainbow-172"],
    ),
    ({"right": {**STABLE, "tokens_of": ["rainbow-172", "rain"]}}, ["'rain'"]),
    ({"right": {**STABLE, "rise": "after"}}, [".right", "tokens_of and rise; give one"]),
    ({"right": {**STABLE, "against": "loss"}}, [".right", "against with tokens_of"]),
    ({"quantizers": ["int8"]}, [".quantizers", "'int8'"]),
    ({"left": {"of": "rainbow-172", "at": "middle"}}, [".left.at", "'middle'"]),
    ({"lef": {"of": "rainbow-172"}}, [".lef", "unknown key", "did you mean 'left'"]),
    ({"metric": "sharpness"}, ["reads sharpness, which figure fig04 does not measure"]),
    ({"quantizers": None}, ["reads quantization_error, which needs a quantizer", "gptq-4bit"]),
    ({"times": 1.65}, ["because"]),
    ({"published": [[1, 2], [3, 4]]}, ["published has 2 pairs for 1 inequalities"]),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, changes, words):
    with one_line("claims.yaml", PLACE, *words):
        made(tmp_path, mine=claim(one(**changes))).claims.judge()


# What an inequality stands for


def test_names_are_filled_in_everywhere():
    found = Inequality.model_validate(
        one(
            says="{each} rises",
            each=["rainbow-036", "rainbow-172"],
            left={"of": "{each}", "less": {"of": ["{each}", "constant-3e-3"], "at": 0}},
            right={"of": "constant-3e-3", "tokens_of": "{each}"},
            published=[[2, 1], None],
        )
    )
    found = list(found.single())
    assert [each.says for each in found] == ["rainbow-036 rises", "rainbow-172 rises"]
    assert found[1].left.less.of == ("rainbow-172", "constant-3e-3")
    assert found[1].right.tokens_of == ("rainbow-172",)
    assert [each.published for each in found] == [((2, 1),), (None,)]
    pairs = Inequality.model_validate(one(says="{each}, {next}", each=["a", "b", "c"]))
    assert [each.says for each in pairs.single()] == ["a, b", "b, c"]


# What the job reads


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", "paper"])
def test_all_claims_of_the_paper_need_nothing_that_figures_do_not(scale):
    plan = planned(scale)
    job, tables = plan.claims.judge(), plan.tables.write()
    numbers = {each.number for each in dict(job.settings.claims).values()} - {None}
    assert numbers == set(range(1, 16))
    drawn = {each.manifest for each in plan.site.needed(plan.last())}
    beside = {each.manifest for each in plan.site.needed([job, tables])} - drawn
    assert beside == {job.manifest, tables.manifest}


def test_what_a_build_or_a_scale_leaves_out_is_not_measured():
    plan = planned("laptop", figures=["fig04"])
    job = plan.claims.judge()
    found = dict(job.settings.claims)
    assert {each.unmeasured for each in found["rise-in-decay"].inequalities} == {None}
    missing = {each.unmeasured for each in found["peak-rate"].inequalities}
    assert missing == {"figure fig06 was not chosen"}
    read = {each.trajectory for each in job.settings.series}
    assert read == {*plan.site.config.figures["fig04"].trajectories}
    found = dict(planned("laptop").claims.judge().settings.claims)
    said = {each.unmeasured for each in found["weight-decay"].inequalities}
    assert "decay-lambda-0.05 is left out at laptop scale" in said and None in said
    (spike,) = [each for each in found["apertus-and-amber"].inequalities if "spike" in each.says]
    assert "of the real run" in spike.unmeasured and spike.seeds == ()
    small = {name: {each.miniatures for each in found[name].inequalities} for name in found}
    assert (small["smollm3"], small["rise-in-decay"]) == ({("SmolLM3-3B",)}, {()})


# The numbers

SEEDS = (100, 7, 8)
DRAWS = ("gptq-4bit", "gptq-4bit-draw-2", "gptq-4bit-draw-3")
RATES = ("3e-4", "1e-3", "3e-3", "1e-2")
ENDS = ["rainbow-036", "rainbow-172"]


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Claims over made-up losses at three seeds: their folder, claims by name, and all content."""
    folder = tmp_path_factory.mktemp("claims")
    level = {"loss_of": ["wsd-3e-4", "wsd-1e-2"]}
    shorter = {"tokens_of": ["constant-3e-3", "rainbow-036"]}
    flat = [f"{kind}-{rate}" for rate in RATES for kind in ("constant", "wsd")]
    ranks = {"of": flat, "over": [0, 1], "against": "hessian_trace"}
    claims = {
        "rise": claim(one(), one(times=1.65, tolerance=0.03, because="the claim says so")),
        "levels": claim(
            one(left={"of": "wsd-3e-4", **level}, right={"of": "wsd-1e-2", **level}),
            figure="fig06",
        ),
        "loss": claim(one(quantizers=None, metric="loss")),
        "never": claim(one(), one(left={"of": "rainbow-172", "tokens_of": "rainbow-002"})),
        "shortest": claim(
            *(
                one(left={"of": "rainbow-036", **at}, right={"of": "constant-3e-3", **at})
                for at in (shorter, {**shorter, "over": [0, 1]})
            )
        ),
        "spread": claim(
            one(left={"of": ENDS, "take": "largest"}, right={"of": ENDS, "take": "smallest"})
        ),
        "alone": claim(one(left={"of": "wsd-3e-3"}, right={"of": "adamc-3e-3"}), figure="fig20"),
        "ranks": claim(one(quantizers=["gptq-3bit"], left=ranks, right=0), figure="flatness"),
    }
    figures = ["fig04", "fig06", "fig20", "flatness"]
    plan = made(folder, {"figures": figures, "more_seeds": [7, 8]}, **claims)
    content, found = judge(folder, plan)
    return folder, found, content


def losses(folder, name, quantizer, seed):
    """Losses of the blocks of every checkpoint, in their order, with its tokens."""
    place = folder / f"results/laptop/measure/{name}/seed-{seed}/{quantizer}/all"
    facts = manifest.read(place / "manifest.json").facts["checkpoints"]
    found = load_file(place / LOSSES)
    return [(each["tokens"], found[each["id"]].astype(np.float64)) for each in facts]


def quantization_error(folder, name, quantizer, seed, place=-1):
    full, found = (losses(folder, name, q, seed)[place][1] for q in ("fp", quantizer))
    return found.mean() / full.mean() - 1


def ends(folder, name):
    """Errors at the end, [seeds, draws]."""
    return np.array([[quantization_error(folder, name, d, s) for d in DRAWS] for s in SEEDS])


def test_a_run_that_diverged_under_one_calibration_set_takes_nothing_from_others(tmp_path):
    """Its own inequality is not measured; how far sets differ is told by other trajectories."""
    kept = one(left={"of": "rainbow-138"}, right={"of": "rainbow-036"})
    plan = made(tmp_path, {"figures": ["fig04"]}, lost=claim(one()), kept=claim(kept))

    def diverge():
        place = tmp_path / "results/laptop/measure/rainbow-172/seed-100/gptq-4bit-draw-2/all"
        path, found = place / "manifest.json", load_file(place / LOSSES)
        facts = manifest.read(path).facts
        for values in found.values():
            values[0] = np.nan
        save_file(found, place / LOSSES)
        path.unlink()
        path.write_text(manifest.describe(place, path, facts).text())

    content, found = judge(tmp_path, plan, diverge)
    assert found["lost"]["verdict"] == "not measured" != found["kept"]["verdict"]
    assert all(each["value"] > 0 for each in content["deviation_between_calibration_sets"])


@pytest.mark.parametrize("right", [2.0, -2.0])
@pytest.mark.parametrize("relation", ["above", "below"])
def test_what_is_tolerated_makes_a_claim_easier_whatever_the_sign(right, relation):
    class Read:
        def value(self, term):
            return Estimate(3.0 if isinstance(term, Term) else term)

    def effect(tolerance):
        given = one(right=right, relation=relation, tolerance=tolerance, because="so")
        return sides(Inequality.model_validate(given), Read())[2].value

    assert effect(0.5) == pytest.approx(effect(0.0) + 0.5 * abs(right))


def test_the_effect_is_the_mean_over_seeds_and_calibration_sets(judged):
    folder, claims, _ = judged
    # In the order of the file.
    assert [*claims] == ["rise", "levels", "loss", "never", "shortest", "spread", "alone", "ranks"]
    first, second = claims["rise"]["inequalities"]
    assert (first["seeds"], first["calibration_sets"]) == ([*SEEDS], 3)
    last, stable = ends(folder, "rainbow-172"), ends(folder, "constant-3e-3")
    assert first["left"]["value"] == pytest.approx(last.mean())
    assert first["right"]["value"] == pytest.approx(stable.mean())
    by_seed = (last - stable).mean(axis=1)
    assert first["effect"] == pytest.approx(by_seed.mean())
    assert first["spread_over_seeds"] == pytest.approx(by_seed.std(ddof=1))
    assert first["error"] == max(first["stderr"], first["spread_over_seeds"])
    assert first["smallest_effect"] == pytest.approx(2 * first["error"])
    assert second["effect"] == pytest.approx((last - 1.65 * 0.97 * stable).mean())
    assert second["ratio"] == pytest.approx(last.mean() / stable.mean())


def test_the_paired_error_of_losses_is_that_of_their_differences(judged):
    folder, claims, _ = judged
    (found,) = claims["loss"]["inequalities"]
    differences = [
        losses(folder, "rainbow-172", "fp", seed)[-1][1]
        - losses(folder, "constant-3e-3", "fp", seed)[-1][1]
        for seed in SEEDS
    ]
    together = np.mean(differences, axis=0)
    assert found["effect"] == pytest.approx(together.mean())
    assert found["stderr"] == pytest.approx(together.std(ddof=1) / len(together) ** 0.5)
    assert found["calibration_sets"] == 0


def test_equal_loss_is_where_the_worst_of_them_ends(judged):
    folder, claims, _ = judged
    (found,) = claims["levels"]["inequalities"]
    values = {"wsd-3e-4": [], "wsd-1e-2": []}
    for seed in SEEDS:
        paths = {}
        for name in values:
            trunk = losses(folder, f"constant-{name[4:]}", "fp", seed)
            own = losses(folder, name, "fp", seed)
            before = [each for each in trunk if each[0] < own[0][0]]
            paths[name] = [b.mean() for _, b in before + own]
        level = max(path[-1] for path in paths.values())
        for name, path in paths.items():
            for draw in DRAWS:
                trunk, own = (
                    [e.mean() for _, e in losses(folder, n, draw, seed)]
                    for n in (f"constant-{name[4:]}", name)
                )
                after = trunk[: len(path) - len(own)] + own
                errors = [q / f - 1 for q, f in zip(after, path, strict=True)]
                place = max(
                    i for i in range(len(path) - 1)
                    if min(path[i : i + 2]) <= level <= max(path[i : i + 2])
                )  # fmt: skip
                share = (level - path[place]) / (path[place + 1] - path[place])
                values[name].append(errors[place] + share * (errors[place + 1] - errors[place]))
    assert found["left"]["value"] == pytest.approx(np.mean(values["wsd-3e-4"]))
    assert found["right"]["value"] == pytest.approx(np.mean(values["wsd-1e-2"]))


def test_of_distances_at_one_seed_no_error_is_known(tmp_path):
    """However far quantization moves the weights, nothing is concluded."""
    moved = {"metric": "weight_distance", "left": {"of": "wsd-1e-2"}, "right": 0}
    both = claim(*(one(relation=to, **moved) for to in ("above", "below")), figure="fig08")
    _, found = judge(tmp_path, made(tmp_path, {"figures": ["fig08"]}, mine=both))
    assert found["mine"]["verdict"] == "inconclusive"
    for each in found["mine"]["inequalities"]:
        assert (each["verdict"], each["why"]) == ("inconclusive", "no error is known")
        assert each["effect"] != 0 and each["stderr"] == 0
        assert each["error"] is each["smallest_effect"] is None


def test_where_a_curve_never_gets_nothing_is_measured(judged):
    _, claims, _ = judged
    _, never = claims["never"]["inequalities"]
    assert never["verdict"] == "not measured" and "effect" not in never
    assert never["why"].startswith("rainbow-172 is not measured at ")
    assert claims["never"]["verdict"] != "reproduced"


def test_equal_tokens_of_several_are_where_the_shortest_of_them_ends(judged):
    folder, claims, _ = judged
    at, over = claims["shortest"]["inequalities"]
    lasts, means = [], []
    for seed in SEEDS:
        for draw in DRAWS:
            tokens = [each[0] for each in losses(folder, "rainbow-036", "fp", seed)]
            stable = [each[0] for each in losses(folder, "constant-3e-3", "fp", seed)]
            errors = [
                quantization_error(folder, "constant-3e-3", draw, seed, place)
                for place in range(len(stable))
            ]
            lasts.append(np.interp(tokens[-1], stable, errors))
            means.append(
                np.mean([e for e, t in zip(errors, stable, strict=True) if t <= tokens[-1]])
            )
    assert stable[-1] > tokens[-1]
    assert at["right"]["value"] == pytest.approx(np.mean(lasts))
    assert over["right"]["value"] == pytest.approx(np.mean(means))
    assert at["left"]["value"] == pytest.approx(ends(folder, "rainbow-036").mean())


def test_a_rise_is_where_the_loss_in_full_precision_rises_most():
    """Not where it is largest, nor where the error is."""

    def read(side, losses, errors):
        class Read:
            def points(self, name, metric, quantizer, seed):
                values = losses if quantizer == FULL_PRECISION else errors
                return pd.DataFrame({"value": map(Estimate, values)})

            between = {}

        terms = Terms(Read(), "quantization_error", ("q",), (1,), 1, "q")
        return terms.value(Term.model_validate({"of": "a", "rise": side})).value

    values = [9.0, 3.0, 3.1, 2.9, 3.6, 2.5], [0.9, 0.2, 0.8, 0.3, 0.5, 0.7]
    assert [read(side, *values) for side in ("before", "after")] == [0.3, 0.5]
    with pytest.raises(NotMeasured, match="the loss of a never rises"):
        read("after", [3.0, 2.0, 1.0], [0.1, 0.2, 0.3])


def test_an_extreme_is_the_same_for_all_seeds(judged):
    folder, claims, _ = judged
    (found,) = claims["spread"]["inequalities"]
    means = [ends(folder, name).mean() for name in ENDS]
    assert found["left"]["value"] == pytest.approx(max(means))
    assert found["right"]["value"] == pytest.approx(min(means))


def test_one_calibration_set_has_the_error_that_others_show(judged):
    folder, claims, content = judged
    (alone,) = claims["alone"]["inequalities"]
    assert (alone["seeds"], alone["calibration_sets"]) == ([100], 1)
    assert alone["not_in_the_error"] == ["other seeds"]
    known = {
        (each["metric"], each["quantizer"]): each["value"]
        for each in content["deviation_between_calibration_sets"]
    }
    read = ("rainbow-172", "constant-3e-3", "rainbow-036", "wsd-3e-4", "wsd-1e-2")
    variances = [ends(folder, name).var(axis=1, ddof=1) for name in read]
    expected = np.mean(variances) ** 0.5
    assert known["quantization_error", "gptq-4bit"] == pytest.approx(expected)
    assert alone["stderr"] > expected * 2**0.5


def test_a_correlation_has_every_checkpoint_once(judged):
    """A cooldown begins with the weights of its trunk, which goes on beside it at one rate."""
    folder, claims, _ = judged
    points = dict[tuple[str, int], tuple[float, float]]()
    for rate in RATES:
        for name in (f"constant-{rate}", f"wsd-{rate}"):
            place = folder / f"results/laptop/curvature/{name}/seed-100/sharpness/all"
            steps = {
                each["id"]: each["step"]
                for each in manifest.read(place / "manifest.json").facts["checkpoints"]
            }
            table = pd.read_csv(place / "values.csv")
            traces = table[table.metric == "hessian_trace"].set_index("checkpoint_id").value
            for number, (id_, step) in enumerate(steps.items()):
                forks = name.startswith("wsd") and not number
                owner = f"constant-{rate}" if forks else name
                value = quantization_error(folder, name, "gptq-3bit", 100, number)
                points.setdefault((owner, step), (value, traces[id_]))
    expected = spearmanr(*zip(*points.values(), strict=True)).statistic
    (found,) = claims["ranks"]["inequalities"]
    assert found["left"]["value"] == pytest.approx(expected)
