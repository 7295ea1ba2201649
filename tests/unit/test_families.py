"""Public families: their miniatures, their checkpoints on the hub, and what is planned of both."""

import re
import shutil
from functools import cache

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import load
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.dimensionless import regimes
from ptq_dynamics.plan.releases import PublicRun
from support import ROOT, edit_yaml
from support import plan as planned

pytestmark = pytest.mark.slow

plan = cache(planned)


def runs_of(made):
    """The families' runs, by name."""
    planned, families = made.site.planned, made.site.config.families
    return {run.name: run for run in planned.runs if run.name in families.runs}


@pytest.fixture
def changed(tmp_path):
    """The plan of a scale with changes to families.yaml."""
    config = shutil.copytree(ROOT / "config", tmp_path / "config")

    def make(change, scale):
        edit_yaml(config / "families.yaml", change)
        return Plan(load({"scale": scale, "seed": 201, "figures": "all"}, config), ROOT)

    return make


# Miniatures


@pytest.mark.parametrize("scale", ["laptop", "gpu"])
def test_miniatures_have_their_families_e_folds(scale):
    """But for the shares of them that the scale and the run say."""
    small, real = (plan(each) for each in (scale, "paper"))
    mine = dict(regimes(small.site.planned))
    theirs = dict(regimes(real.site.planned))
    families = small.site.config.families
    compared = [name for name in runs_of(small) if name in theirs]
    assert len(compared) > 20
    for name in compared:
        ratio = mine[name].e_folds / theirs[name].e_folds
        share = small.site.config.scale.miniatures.e_folds * families.first(name)[1].e_folds
        # Of what is longest warmed up, the real one has less of its rate.
        assert ratio == pytest.approx(share, rel=0.08), (name, ratio)
        assert mine[name].cooldown == pytest.approx(theirs[name].cooldown, abs=0.02), name


def test_miniatures_go_along_their_families_schedules():
    """At equal shares of their tokens, the rates have equal shares of the peaks."""
    small, real = plan("laptop"), plan("paper")
    compared = 0
    for name, run in runs_of(small).items():
        public = getattr(real.site.planned.get(name), "entry", None)
        if not isinstance(public, PublicRun):
            continue
        first, last, own, peak = run.first, run.last, run.schedule, run.trunk.schedule.peak
        before = run.trunk.schedule
        theirs = public.schedule
        ends = theirs.start + theirs.length if hasattr(theirs, "start") else None
        end = ends or max(each.step for each in public.checkpoints.values())
        for part in (0.2, 0.5, 0.8, 0.97, 0.99):
            step = int(part * last)
            # A batch that doubles makes steps count differently on both sides alike.
            mine = (before if step < first else own).learning_rate(step) / peak
            schedule = public.earlier if int(part * end) < public.first else theirs
            rate = schedule.learning_rate(int(part * end)) / public.earlier.peak
            assert mine == pytest.approx(rate, abs=0.06), (name, part)
            compared += 1
    assert compared > 100


# Checkpoints on the hub


def test_averages_take_what_their_authors_took():
    """Not the last listed ones, where they are known; miniatures take the last ones."""
    made = plan("paper")

    def shares(name, weight=1.0):
        """What the last mean of an average has, by trajectory and checkpoint."""
        (*_, last) = made.trajectories.jobs(name)
        mean, sources = last.settings.means[-1], made.site.planned[name].sources
        total, found = sum(each.weight for each in mean.members), {}
        for each in mean.members:
            source, share = sources[each.source].name, weight * each.weight / total
            is_mean = made.site.planned[source].sources
            found |= shares(source, share) if is_mean else {(source, each.checkpoint): share}
        return found

    steps = (4_360, 4_440, 4_480, 4_520, 4_560, 4_640, 4_680)
    taken = [("smollm3-decay", f"stage3-step-{step}000") for step in steps]
    for last in (2, 4, 7):
        expected = dict.fromkeys(taken[-last:], pytest.approx(1 / last))
        assert shares(f"smollm3-last-{last}") == expected
    ends = ("11931-tokens50B", "7000-tokens30B")
    assert shares("olmo2-7b-last-6") == {
        (f"olmo2-7b-ingredient-{n}", f"stage2-ingredient{n}-step{end}"): pytest.approx(1 / 6)
        for n in (1, 2, 3)
        for end in ends
    }
    small = plan("laptop")
    measured = small.site.planned["smollm3-decay"].measured
    assert small.site.planned["smollm3-last-2"].checkpoints == measured[1:]


@pytest.mark.parametrize(
    ("name", "revision"),
    [
        ("olmo2-1b", "stage1-step1200000-tokens2517B"),
        ("olmo2-32b", "stage1-step533000-tokens4472B"),
        ("apertus-decay", "step2600000-tokens14792B"),
    ],
)
def test_tokens_are_those_that_the_revisions_name(name, revision):
    found = plan("paper").site.planned[name].entry.checkpoints[revision]
    published = int(re.search(r"tokens(\d+)B", revision)[1]) * 1e9
    assert found.tokens == pytest.approx(published, rel=2e-3)


def test_a_figure_goes_without_what_is_not_public():
    made = plan("paper")
    gone = {"fig11", "fig15", "fig23", "beyond-architectures"}  # the last has models in small
    assert {*plan("laptop").site.config.figures} - {*made.site.config.figures} == gone
    with pytest.raises(Problem, match=r"paper scale leaves out figure fig15 \(.+\);"):
        Plan(load({"scale": "paper", "seed": 1, "figures": ["fig15"]}, ROOT / "config"), ROOT)


TWICE = {"constant-3e-3": {"family": "amber", "schedule": "constant", "tokens": 1e12}}
EARLY = "stage2-step-4080000"
MISFITS = [
    ("laptop", lambda f: f["runs"]["olmo2-7b"].update(horizon=1e12), "in small: schedule.horizon"),
    ("laptop", lambda f: f["runs"]["apertus-decay"].update(steady=9e12), "tokens minus steady"),
    ("laptop", lambda f: f["runs"].update(TWICE), "'constant-3e-3' twice; rename"),
    ("laptop", lambda f: f["families"]["amber"]["miniature"].update(heads=3), "heads 3 does not"),
    ("paper", lambda f: f["runs"]["amber"].update(revisions=["main"]), "'main', where step_in"),
    ("paper", lambda f: f["runs"]["amber"]["revisions"].reverse(), "'ckpt_350', .*; sort them"),
    (
        "paper",
        lambda f: f["runs"]["smollm3-decay"]["revisions"].insert(0, EARLY),
        "step 4,080,000, after step 4,198,0.* of the trunk",
    ),
    ("paper", lambda f: f["families"]["smollm3"].update(step_in="step-"), "step_in finds no step"),
    ("paper", lambda f: f["runs"]["apertus-decay"].update(tokens=1.0), r"runs\.apertus-decay"),
]


@pytest.mark.parametrize(("scale", "change", "words"), MISFITS)
def test_what_does_not_fit_is_one_line(changed, scale, change, words):
    with pytest.raises(Problem, match=f"families.yaml.*{words}") as caught:
        changed(change, scale)
    assert "\n" not in str(caught.value)


def test_downloads_are_all_that_needs_a_network():
    stages = {job.stage for job in plan("paper").downloads()}
    assert {"trajectories.fetch", "measure.tasks.harness", "quantize.environment"} <= stages
    assert not plan("smoke").downloads()
    with pytest.raises(Problem, match=r"lacks \d+ revisions, such as .*; run ptq-dynamics lock"):
        plan("paper").prefetched()


def test_real_schedules_have_published_rates():
    """Of OLMo-2 32B: about 6.6e-5 where its cosine is cut."""
    found = plan("paper").site.planned
    last = [*found["olmo2-32b"].entry.checkpoints.values()][-1]
    assert last.lr == pytest.approx(6.6e-5, rel=0.02)
    decay = found["smollm3-decay"].entry
    assert decay.first == pytest.approx(4_198_001, rel=1e-3)
    assert decay.schedule.learning_rate(4_720_000) < 2e-6
