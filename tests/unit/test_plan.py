"""The plan: the paper's steps at scale paper, and what job specifications hold."""

import importlib.metadata
import json
import re
import shutil
from functools import cache
from itertools import chain, pairwise

import drawing
import pytest
from ptq_dynamics.base.content import canonical
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import SCALES, Branch, Tails, Whole
from ptq_dynamics.config.quantizers import Quantizer
from ptq_dynamics.graph.regime import regimes
from ptq_dynamics.quantize import lock_file
from ptq_dynamics.train.architectures.gpt_neox import GptNeoX
from ptq_dynamics.train.optimizers import Optimizer
from ptq_dynamics.train.optimizers.adamw import AdamW
from ptq_dynamics.train.schedules import Constant, Wsd
from ptq_dynamics.train.trajectory import step_id
from pydantic import TypeAdapter
from support import PROBES, ROOT, edit_yaml, figure, jobs_of, plan, tiny_config


@cache
def at(scale):
    return plan(scale)


def train(name, scale="paper"):
    return at(scale).trajectories.train(name).settings


def jobs(scale):
    """Every job that the figures and their measurements need."""
    found = at(scale)
    yield found.figures.collect()
    yield from (found.figures.figure(name) for name in found.figures.chosen)
    yield from jobs_of(found, found.site.timeline.names, ["gptq-4bit", "rtn-3bit"])


# The paper's numbers (section 4)


@pytest.mark.parametrize("thousands", [2, 36, 70, 104, 138, 172])
def test_the_rainbows_cooldowns_are_the_papers(thousands):
    settings = train(f"rainbow-{thousands:03d}")
    first = thousands * 1000
    assert (settings.first, settings.last) == (first, first + 18_000)
    assert settings.schedule == Wsd(
        kind="wsd",
        peak=3e-3,
        warmup=1900,
        floor=0.0,
        start=first,
        length=18_000,
        shape="linear",
    )
    assert settings.first_tokens == first * settings.batch * settings.context
    tokens = settings.last * settings.batch * settings.context / 1e9
    ends = {2: 10.5, 36: 28.3, 70: 46.1, 104: 64.0, 138: 81.8, 172: 99.6}
    assert tokens == pytest.approx(ends[thousands], abs=0.05)


@pytest.mark.parametrize("rate", ["3e-4", "1e-3", "3e-3", "1e-2"])
def test_the_peak_rates_are_the_papers(rate):
    trunk, decay = train(f"constant-{rate}"), train(f"wsd-{rate}")
    assert trunk.schedule == Constant("constant", peak=float(rate), warmup=1900)
    assert trunk.last == (190_000 if rate == "3e-3" else 152_000)
    assert (decay.first, decay.last) == (152_000, 190_000)
    assert (decay.schedule.peak, decay.schedule.length) == (float(rate), 38_000)


@pytest.mark.parametrize("thousands", [40, 80, 120])
def test_the_cooldowns_beside_lawa_are_the_papers(thousands):
    settings = train(f"decay-{thousands:03d}")
    assert (settings.first, settings.last) == (thousands * 1000, thousands * 1000 + 38_000)


def test_lawa_averages_the_last_checkpoints_every_500_steps():
    timeline = at("paper").site.timeline
    checkpoints = {point.step for point in timeline.checkpoints("constant-3e-3")}
    for window in (5, 20):
        points = timeline.measured(f"lawa-{window}")
        steps = {point.id: point.step for point in points}
        assert min(steps.values()) >= 500 * window
        assert max(steps.values()) == 190_000
        needed = {step - 500 * back for step in steps.values() for back in range(window)}
        assert needed <= checkpoints, sorted(needed - checkpoints)[:3]
        # One job at every shard, which holds the averages at its checkpoints.
        jobs = at("paper").trajectories.makers(f"lawa-{window}")
        means = [mean for job in jobs for mean in job.settings.means]
        assert [mean.id for mean in means] == list(steps)
        for mean in means:
            assert [m.checkpoint for m in mean.members] == [
                step_id(mean.step - 500 * back) for back in reversed(range(window))
            ]


def test_the_model_and_its_training_are_the_papers():
    settings = train("constant-3e-3")
    model = settings.model
    assert isinstance(model, GptNeoX) and settings.vocabulary == 50304
    size = (model.layers, model.width, model.heads, model.feedforward, model.rotary_fraction)
    assert size == (12, 768, 12, 3072, 0.25) and model.context == 2048
    assert settings.context == settings.model.context
    assert settings.batch * settings.context == 524_288
    chosen = {"kind": "adamw", "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    assert settings.optimizer == AdamW(**chosen)
    assert settings.clip == 1.0
    assert (settings.seed, settings.precision) == (100, "bfloat16")
    tokens = settings.last * 524_288
    assert at("paper").site.config.scale.corpora["main"].train >= tokens + 1


@pytest.mark.parametrize("bits", [3, 4])
def test_gptq_has_the_papers_settings(bits):
    found = at("paper")
    shard = next(iter(found.site.timeline.shards("wsd-3e-3")))
    job = found.quantization.quantize("wsd-3e-3", f"gptq-{bits}bit", shard)
    settings = job.settings.quantizer
    assert (settings.bits, settings.group_size) == (bits, 128)
    assert (settings.symmetric, settings.damping) == (True, 0.05)
    assert settings.activation_order == "static"
    assert (job.settings.calibration_sequences, job.settings.calibration_documents) == (1024, True)


@pytest.mark.parametrize(
    ("scale", "validation", "calibration", "probe"),
    [
        ("paper", {2048: 293, 1024: 586}, {2048: 1024, 1024: 1024}, 100),
        ("laptop", {128: 512, 64: 512}, {128: 32, 64: 32}, 24),
        ("smoke", {32: 64, 16: 64}, {32: 32, 16: 32}, 8),
    ],
)
def test_held_out_text_is_that_of_the_paper_or_so_many_blocks(
    scale, validation, calibration, probe
):
    found, contexts = at(scale), set()
    shards = found.site.timeline.shards
    for name in found.site.config.runs.runs:
        shard = next(iter(shards(name)))
        losses = found.losses.evaluate(name, "fp", shard).settings
        quantized = found.quantization.quantize(name, "rtn-3bit", shard).settings
        contexts.add(losses.context)
        assert losses.blocks == validation[losses.context], name
        assert quantized.calibration_sequences == calibration[losses.context], name
    assert contexts == set(validation)
    curvature = found.geometry.curvature
    shard = next(iter(shards("constant-3e-3")))
    assert curvature("constant-3e-3", "sharpness", shard).settings.sequences == probe
    # The published validation set has about 600,000 tokens (section 2).
    if scale == "paper":
        assert {context * blocks for context, blocks in validation.items()} == {600_064}


def test_every_state_that_is_branched_from_is_kept():
    for scale in SCALES:
        found = at(scale).trajectories
        for name, run in at(scale).site.config.runs.runs.items():
            if isinstance(run, Branch):
                job = found.train(name)
                assert job.settings.first in train(run.trunk, scale).state_steps, (scale, name)
                assert job.inputs["trunk"] == [found.train(run.trunk).manifest]


@pytest.mark.parametrize("scale", SCALES)
def test_scales_are_the_paper_in_proportion(scale):
    budget = at(scale).site.config.scale.budget
    for name in ("rainbow-036", "wsd-1e-3", "decay-120", "constant-3e-4"):
        for key in ("first", "last"):
            expected = getattr(train(name), key) * budget / 190_000
            found = getattr(train(name, scale), key)
            assert found == pytest.approx(expected, abs=0.5), (name, key)


@pytest.mark.parametrize("scale", SCALES)
def test_measured_points_are_checkpoints_and_hold_both_ends(scale):
    timeline = at(scale).site.timeline
    for name in timeline.names:
        measured, points = timeline.measured(name), timeline.checkpoints(name)
        assert set(measured) <= set(points), name
        assert (measured[0], measured[-1]) == (points[0], points[-1]), name
        steps = [point.step for point in measured if point.step is not None]
        if isinstance(timeline.trajectory(name), Tails):
            assert set(steps) == {timeline.measured("constant-3e-3")[-1].step}, name
        else:
            assert steps == sorted(set(steps)), name
        for found in (measured, points):
            assert len({point.id for point in found}) == len(found), name
        assert [point for part in timeline.shards(name).values() for point in part] == measured


@pytest.mark.parametrize("name", ["decay-lambda-0", "cosine-020-3e-3", "cosine-190-3e-3"])
def test_short_runs_are_measured_as_closely_as_they_need(name):
    timeline = at("laptop").site.timeline
    measure, steps = timeline.scale.measure, [point.step for point in timeline.measured(name)]
    widest = max(after - before for before, after in pairwise(steps))
    assert widest <= timeline.steps(measure.trunk_every), steps
    assert len(steps) > measure.trunk_least, steps


@pytest.mark.parametrize("every", ["1.5/190", "2/190", "5/190", "9/190"])
def test_checkpoints_of_any_spacing_are_measured_as_often(tmp_path, every):
    """Where the spacing does not divide the distance of measurements, the nearest are taken."""

    def coarse(runs):
        runs["runs"]["constant-3e-3"]["checkpoint_every"] = every
        runs["averages"] = {}

    figures = {"one": drawing.figure("ends", {"A": ["constant-3e-3"]}, ["gptq-3bit"])}
    timeline = drawing.planned(tmp_path, figures, runs=coarse).site.timeline
    steps = [point.step for point in timeline.measured("constant-3e-3")]
    run = timeline.run("constant-3e-3")
    widest = run.measured_every(timeline) + run.spacing(timeline)
    gaps = [after - before for before, after in pairwise(steps)]
    assert max(gaps) <= widest, steps


def test_what_stays_whole_cannot_be_dropped():
    with pytest.raises(Problem, match=r"drop/train/wsd-3e-3/seed-100 drops nothing"):
        at("smoke").keeping.drop("train/wsd-3e-3/seed-100")


def test_a_large_group_size_is_found_at_once():
    kind = TypeAdapter(Quantizer).validate_python(
        {"method": "rtn", "bits": 4, "group_size": {"at_most": 10**12}}
    )
    assert kind.resolved((96, 384)).columns == 96


def test_a_shard_is_a_checkpoint_at_scale_paper_and_a_trajectory_at_laptop():
    parts = at("paper").site.timeline.shards("rainbow-036")
    assert {len(part) for part in parts.values()} == {1}
    assert list(parts) == [point.id for point in at("paper").site.timeline.measured("rainbow-036")]
    assert list(at("laptop").site.timeline.shards("rainbow-036")) == ["all"]


@pytest.mark.parametrize(("scale", "group"), [("paper", 128), ("gpu", 64), ("laptop", 16)])
def test_group_sizes_are_the_largest_that_divide(scale, group):
    timeline = at(scale).site.timeline
    shape = timeline.trajectory("constant-3e-3").model_shape(timeline).model
    fits = [g for g in range(1, 129) if not shape.width % g and not shape.feedforward % g]
    assert at(scale).losses.series("constant-3e-3", "gptq-4bit").group_size == max(fits) == group
    shard = next(iter(timeline.shards("constant-3e-3")))
    job = at(scale).quantization.quantize("constant-3e-3", "gptq-4bit", shard)
    assert job.settings.quantizer.group_size == group


# Specifications


LARGE_LAST = [*SCALES[:-1], pytest.param(SCALES[-1], marks=pytest.mark.slow)]


@pytest.mark.parametrize("scale", LARGE_LAST)
def test_specifications_are_canonical_and_hold_no_absolute_path(scale):
    found = list(jobs(scale))
    assert len({(job.folder, job.stem) for job in found}) == len(found)
    for job in found:
        spec = job.spec()
        assert spec == canonical(json.loads(spec)), job.name
        assert str(ROOT) not in spec, job.name
        paths = chain([job.folder, job.manifest], job.needs, job.outputs)
        assert not [path for path in paths if path.startswith(("/", "~", ".."))], job.name
        assert not re.search(r'"/(home|root|tmp|usr|work)', spec), job.name


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_specifications_do_not_depend_on_the_process(scale):
    again, before = plan(scale), at(scale)
    assert again.figures.figure("fig04").spec() == before.figures.figure("fig04").spec()
    runs = [found.trajectories.train("rainbow-172").spec() for found in (again, before)]
    assert runs[0] == runs[1]


def test_a_job_depends_on_its_own_slice_of_the_configuration():
    base, other = plan("smoke"), plan("smoke", seed=7)
    runs = [found.trajectories.train("constant-3e-3").spec() for found in (base, other)]
    assert runs[0] != runs[1]
    corpora = [found.corpora.corpus("main").spec() for found in (base, other)]
    assert corpora[0] == corpora[1]
    quantize = base.quantization.quantize
    one, two = (quantize("constant-3e-3", name) for name in ("gptq-4bit", "gptq-3bit"))
    assert one.settings.quantizer != two.settings.quantizer


def test_what_a_job_needs_is_made_by_a_job_that_the_plan_knows():
    found = at("smoke")
    made = {job.manifest for job in jobs("smoke")}
    figure = found.figures.figure("fig04")
    assert set(figure.needs) <= made, set(figure.needs) - made
    names = found.site.config.figures["fig04"].trajectories
    runs = {f"run {name} seed 100" for name in names}
    series = {series.label("losses") for series in figure.settings.series}
    assert {each.quantizer for each in figure.settings.series} == {"fp", "gptq-4bit"}
    assert {each.trajectory for each in figure.settings.series} == set(names)
    assert set(figure.inputs) == runs | series
    for job in jobs("smoke"):
        if not job.stage.startswith(("figures", "measure.collect")):
            assert set(job.needs) <= made, (job.folder, set(job.needs) - made)


def test_the_table_has_every_series_of_every_figure_and_their_raw_results():
    found = at("smoke").figures
    table = found.collect()
    for name in found.chosen:
        figure = found.figure(name)
        assert set(figure.settings.series) <= set(table.settings.series), name
        for series in figure.settings.series:
            kinds = [kind for kind in ("losses", *PROBES) if series.label(kind) in figure.inputs]
            for label in map(series.label, kinds):
                assert table.inputs[label] == figure.inputs[label], (name, label)


def test_targets_are_the_chosen_figures_and_with_all_the_table():
    targets = set(at("smoke").targets())
    pictures = {f"figures/smoke/fig04.{kind}" for kind in ("pdf", "png", "csv")}
    assert pictures <= targets
    assert "results/smoke/measurements.csv" in targets
    assert set(plan("smoke", figures=["fig04"]).targets()) == pictures


# Which quantizer a scale takes where a figure names one


def taking(folder, **quantizers):
    """A plan of figures of GPTQ at a scale that takes these quantizers instead of others."""
    config = tiny_config(folder)
    curves = {"one": ["branch"]}
    shown = figure("losses", curves, ["loss", "weight_mse"], quantizers=["gptq4", "gptq3"])
    landscape = figure("landscapes", curves, [], quantizers=["gptq4"])
    landscape |= {"landscape": {"previous": "2/190"}}
    figures = {"shown": shown, "landscape-of-it": landscape}
    edit_yaml(config / "figures.yaml", lambda found: found.update(figures))
    edit_yaml(config / "scales/smoke.yaml", lambda found: found.update(quantizers=quantizers))
    return plan("smoke", config, figures=list(figures))


def test_a_scale_takes_its_own_quantizer_where_a_figure_names_one(tmp_path):
    plain, other = taking(tmp_path / "plain"), taking(tmp_path / "other", gptq4="rtn3")
    for found, used in ((plain, "gptq4"), (other, "rtn3")):
        job = found.figures.figure("shown")
        assert [(each.name, each.used) for each in job.settings.quantizers] == [
            ("gptq4", used),
            ("gptq3", "gptq3"),
        ]
        method = found.site.config.quantizers[used].method
        assert job.settings.quantizers[0].method == method
        names = ["fp", used, "gptq3"]
        for each in (job, found.figures.collect()):
            assert [series.quantizer for series in each.settings.series] == names
            labels = {f"losses branch seed 100 {name}" for name in names}
            labels |= {f"layers branch seed 100 {name}" for name in names[1:]}
            assert {label for label in each.inputs if not label.startswith("run")} == labels
        quantize = found.quantization.quantize("branch", used)
        assert job.inputs[f"layers branch seed 100 {used}"] == [quantize.manifest]
        # The landscape's label has the figure's name, its plane the quantizer that is taken.
        (landscape,) = found.figures.figure("landscape-of-it").inputs["landscape branch gptq4"]
        assert f"/landscape/branch/seed-100/{used}/" in landscape
        assert found.site.made[landscape].inputs["quantized"] == [quantize.manifest]


def test_a_scale_that_takes_another_quantizer_changes_no_other_measurement(tmp_path):
    plain, other = taking(tmp_path / "plain"), taking(tmp_path / "other", gptq4="rtn3")
    for found in (plain, other):
        found.figures.collect()
    one, two = plain.site.made, other.site.made
    both = {path for path in one.keys() & two.keys() if one[path].stage != "measure.collect"}
    assert {"train", "quantize", "evaluate"} <= {path.split("/")[2] for path in both}
    for path in both:
        assert one[path].spec() == two[path].spec(), path
    gone, new = one.keys() - two.keys(), two.keys() - one.keys()
    assert gone and all("gptq4" in path for path in gone)
    assert new and all("rtn3" in path for path in new)


@pytest.mark.parametrize(
    "quantizers", [{"gptq4": "gptq-5bit"}, {"gptq-5bit": "gptq4"}], ids=["taken", "named"]
)
def test_a_scale_takes_known_quantizers_for_known_ones(tmp_path, quantizers):
    with pytest.raises(Problem, match=r"smoke\.yaml: quantizers names no known .*'gptq-5bit'"):
        taking(tmp_path, **quantizers)


def test_a_quantizer_of_another_tool_brings_its_environment_and_its_scripts():
    found = at("smoke")
    quantize = found.quantization.quantize
    worker = quantize("rainbow-172", "gptqmodel-4bit")
    assert worker.inputs["environment"] == [found.quantization.environment("gptqmodel").manifest]
    code = set(json.loads(worker.spec())["definitions"])
    assert {"GPTQModelBackend", "JobError"} <= code and "AutoGPTQBackend" not in code
    one = quantize("rainbow-172", "gptq-4bit")
    assert "environment" not in one.inputs
    assert not {"GPTQModelBackend", "JobError"} & set(json.loads(one.spec())["definitions"])


def test_a_corpus_of_installed_packages_holds_their_versions():
    found = at("smoke")
    packages = found.site.config.scale.corpora["main"].packages
    environment = json.loads(found.corpora.corpus("main").spec())["environment"]
    assert {name: environment[name] for name in packages} == {
        name: importlib.metadata.version(name).split("+")[0] for name in packages
    }


LOCK = "# A comment.\n# pip-env: A=1\ntorch==2.11  # why\n\nnumpy @ https://x/y#sha256=0\n"


def test_a_comment_in_a_lock_file_installs_nothing_again():
    same = LOCK.replace("A comment", "Another").replace("# why", "# because")
    assert same != LOCK and lock_file.digest(same) == lock_file.digest(LOCK)
    assert lock_file.options(LOCK) == {"A": "1"}
    for old, new in (("A=1", "A=2"), ("2.11", "2.12"), ("sha256=0", "sha256=1")):
        assert lock_file.digest(LOCK.replace(old, new)) != lock_file.digest(LOCK)


@pytest.mark.parametrize(
    ("quantizer", "columns"), [("rtn-3bit", 16), ("gptq-4bit", 16), ("int8", None), ("nf4", None)]
)
def test_a_series_has_columns_in_a_group_where_there_are_groups_of_columns(quantizer, columns):
    assert at("laptop").losses.series("rainbow-172", quantizer).group_size == columns


def test_an_unknown_shard_is_a_problem():
    with pytest.raises(Problem, match="lawa-20 has no shard 'none' \\(its shards: all\\)"):
        plan("smoke").trajectories.average("lawa-20", "none")


# What kinds answer


def test_the_family_of_what_is_made_from_a_run_is_the_runs(tmp_path):
    config = shutil.copytree(ROOT / "config", tmp_path / "config")
    edit_yaml(
        config / "runs.yaml", lambda found: found["runs"]["constant-3e-3"].update(family="others")
    )
    series = plan("smoke", config).losses.series
    names = ("constant-3e-3", "wsd-3e-3", "lawa-20", "lawa-to-decay", "constant-1e-3", "wsd-1e-3")
    found = [series(name, "fp").family for name in names]
    assert found == ["others"] * 4 + ["controlled"] * 2


def test_an_optimizer_without_weight_decay_has_labels_and_a_regime(monkeypatch):
    class Plain(Optimizer):
        def make(self, model, budget):
            return None

    monkeypatch.setattr(Whole, "papers_optimizer", lambda *_: Plain(kind="plain"))
    made = plan("laptop")
    label = made.figures._label("LR = 3e-3, λ = 1e-1", ("constant-3e-3",))
    assert label == "LR = 2.4e-2 ≙ 3e-3, λ = 1e-1"
    regime = dict(regimes(made.site, made.trajectories))["constant-3e-3"]
    assert regime.e_folds == 0 and regime.timescale is None
