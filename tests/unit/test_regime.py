"""What a scale makes of the paper's runs, and the numbers in which they are alike."""

import shutil

import pytest
from ptq_dynamics.config import scales
from ptq_dynamics.plan.dimensionless import regimes
from support import ROOT, edit_yaml, plan

FAR = ["decay-lambda-0.1", "decay-lambda-0.05"]


def numbers(of):
    return dict(regimes(of.site.planned))


@pytest.fixture
def changed(tmp_path):
    """The plan of scale laptop with changes to its file."""

    def make(change):
        folder = shutil.copytree(ROOT / "config", tmp_path / "config", dirs_exist_ok=True)
        edit_yaml(folder / "scales/laptop.yaml", change)
        return plan("laptop", folder)

    return make


def factors(peak_lr, weight_decay, left_out=FAR, **others):
    regime = {"peak_lr_factor": peak_lr, "weight_decay_factor": weight_decay}
    regime |= {"warmup_factor": 1, "batch": 16}
    regime["left_out"] = dict.fromkeys(left_out, "its decay would change the sign of weights")
    return lambda scale: scale.update(regime=regime, **others)


def test_the_papers_numbers_are_those_of_its_recipes():
    found = numbers(plan("paper"))
    main = found["constant-3e-3"]
    # 190,000 steps at 3e-3 with λ 0.1, but for the warmup, of which half counts.
    assert main.e_folds == pytest.approx(57 * (1 - 0.01 / 2), rel=1e-4)
    assert main.timescale == pytest.approx(1 / 57)
    assert (main.warmup, main.cooldown) == (0.01, 0)
    assert main.tokens_per_parameter == pytest.approx(614, rel=0.01)
    assert found["wsd-3e-3"].cooldown == 0.2
    assert found["decay-lambda-0"].e_folds == 0 and found["decay-lambda-0"].timescale is None


@pytest.mark.parametrize("scale", [name for name in scales(ROOT / "config") if name != "smoke"])
def test_a_scale_leaves_out_what_it_cannot_have_and_has_all_else(scale):
    """Decays of more than half of a weight in a step, and spacings that are no number of steps."""
    config = plan(scale).site.config
    regime, budget, unfit = config.scale.regime, config.scale.budget, set()
    for name, run in config.runs.runs.items():
        every = budget * (run.checkpoint_every or config.runs.defaults.checkpoint_every)
        unfit |= {name} if abs(round(every) / every - 1) > 0.05 else set()
        if (kind := getattr(run, "optimizer", None)) and kind.kind == "adamw-independent":
            step = kind.weight_decay * regime.peak_lr_factor * regime.weight_decay_factor
            unfit |= {name} if step > 0.5 else set()
    assert {*regime.left_out} == unfit
    runs = plan(scale).site.planned
    if "larger-batch" in unfit:
        bits = plan(scale, figures=["beyond-bits"]).figures.figure("beyond-bits")
        assert bits.settings.absent == ("LR = 3e-3, batch × 4",)
    for name in {"larger-batch", "larger-batch-decay"} & runs.keys():
        assert runs.run(name).trained.batch == 4 * regime.batch


def test_rates_and_weight_decay_have_their_factors(changed):
    before, after = numbers(changed(factors(1, 1, []))), changed(factors(5, 10))
    runs = after.site.planned
    schedule = after.trajectories.train("wsd-1e-2").settings.schedule
    assert schedule.peak == pytest.approx(5e-2)
    # AdamW with independent decay has both, so that a step takes as much more as AdamW's does.
    for name, decay in (("wsd-1e-2", 1), ("adamc-3e-3", 1), ("decay-lambda-0.01", 0.5)):
        assert runs.run(name).optimizer.weight_decay == pytest.approx(decay)
    found = numbers(after)
    families = after.site.config.families.runs
    controlled = [name for name in found if name not in families]
    assert len(controlled) > 50
    for name in controlled:
        assert found[name].e_folds == pytest.approx(50 * before[name].e_folds), name


def test_what_is_left_out_is_not_planned_and_figures_say_so(changed):
    made = changed(factors(5, 10))
    assert not {*FAR} & {*made.site.planned}
    job = made.figures.figure("fig19")
    gone = f"Left out at this scale: decay-lambda-0.05, {FAR[0]}."
    assert len(job.settings.curves) == 5 and gone in job.settings.notes
    assert not [path for job in made.targets() for path in job.needs if FAR[0] in path]
    assert "Left out" not in str(made.figures.figure("fig04").settings.notes)


def test_legends_have_the_papers_rates_and_captions_what_they_are_here(changed):
    made = changed(factors(5, 10))
    names = ("fig04", "fig06", "fig19", "fig22")
    settings = {name: made.figures.figure(name).settings for name in names}
    assert settings["fig06"].curves[0][0] == "LR = 3e-4"
    own = "Here the paper's "
    here = {name: each.notes[0].removeprefix(own) for name, each in settings.items()}
    assert here["fig04"] == "3e-3 is 1.5e-2."
    assert here["fig06"] == "3e-4 is 1.5e-3, 1e-3 is 5e-3, 3e-3 is 1.5e-2, 1e-2 is 5e-2."
    assert here["fig19"].startswith("5e-4 is 2.5e-2, 1e-3 is 5e-2")
    assert here["fig22"] == "6e-4 is 3e-3, 3e-3 is 1.5e-2."
    assert not plan("smoke").figures.figure("fig06").settings.notes
