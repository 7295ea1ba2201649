"""Public families: their miniatures, their checkpoints on the hub, and what is planned of both."""

import json
import math
import re
import shutil
from csv import DictReader
from itertools import pairwise

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import PublicRun, Stage, load
from ptq_dynamics.config.releases import to_lock
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.regime import regimes
from ptq_dynamics.hub.lock import LOCK, Wanted
from ptq_dynamics.train.average_settings import LastSettings
from ptq_dynamics.train.schedules import learning_rate
from support import ROOT, edit_yaml, plan

SMALL = ("smoke", "laptop", "gpu")
HEX = "0123456789abcdef"


def runs_of(made):
    """The families' runs, by name."""
    runs = made.site.config.runs
    return {name: run for name, run in runs.runs.items() if "families" in runs.file(name)}


@pytest.fixture
def changed(tmp_path):
    """The plan of a scale with changes to families.yaml and, with some, to the lock."""
    config = shutil.copytree(ROOT / "config", tmp_path / "config")

    def make(change=lambda _: None, scale="laptop", lock=None, figures="all", quantizers=()):
        edit_yaml(config / "families.yaml", change)
        for name in quantizers:
            edit_yaml(
                config / "figures.yaml", lambda f, n=name: f[n].update(quantizers=["rtn-4bit"])
            )
        if lock is not None:
            (config / LOCK.name).write_text(json.dumps(lock))
        return Plan(load({"scale": scale, "seed": 101, "figures": figures}, config), ROOT)

    return make


# Miniatures


@pytest.mark.parametrize("scale", SMALL)
def test_miniatures_have_their_families_e_folds(scale):
    """But for the share of them that the scale says."""
    small, real = (plan(each) for each in (scale, "paper"))
    mine = dict(regimes(small.site, small.trajectories))
    theirs = dict(regimes(real.site, real.trajectories))
    share = small.site.config.scale.miniatures.e_folds
    compared = [name for name in runs_of(small) if name in theirs and scale != "smoke"]
    assert len(compared) > 20 or scale == "smoke"
    for name in compared:
        ratio = mine[name].e_folds / theirs[name].e_folds
        # Of what is longest warmed up, the real one has less of its rate.
        assert ratio == pytest.approx(share, rel=0.08), (name, ratio)
        assert mine[name].cooldown == pytest.approx(theirs[name].cooldown, abs=0.02), name


def test_miniatures_go_along_their_families_schedules():
    """At equal shares of their tokens, the rates have equal shares of the peaks."""
    small, real = plan("laptop"), plan("paper")
    compared = 0
    for name, run in runs_of(small).items():
        public = real.site.config.runs.public.get(name)
        if not isinstance(public, PublicRun):
            continue
        (first, last), trunk = run.ends(small.site.timeline), run.whole(small.site.timeline)
        own, peak = small.trajectories.schedule(run), trunk.peak(small.site.timeline)
        before = small.trajectories.schedule(trunk)
        theirs = public.schedule
        ends = theirs.start + theirs.length if hasattr(theirs, "start") else None
        end = ends or max(each.step for each in public.revisions.values())
        for part in (0.2, 0.5, 0.8, 0.97, 0.99):
            step = int(part * last)
            # A batch that doubles makes steps count differently on both sides alike.
            mine = learning_rate(before if step < first else own, step) / peak
            rate = public.learning_rate(int(part * end)) / public.earlier.peak
            assert mine == pytest.approx(rate, abs=0.06), (name, part)
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("scale", SMALL)
def test_the_power_of_the_ratio_is_the_one_of_the_least_loss(scale):
    with (ROOT / "results/reference/sweeps/miniatures.csv").open() as file:
        rows = [*DictReader(file)]
    best = {
        key: float(min(rows, key=lambda row: float(row[key]))["rate_exponent"])
        for key in ("mean", "loss_opensci-1.3b")
    }
    small = plan(scale).site.config.scale.miniatures
    assert small.rate_exponent == best["mean"], rows
    own = dict.fromkeys(("opensci-1.3b", "opensci-1.7b"), best["loss_opensci-1.3b"])
    assert small.exponents == own, rows


def test_a_batch_doubles_and_the_data_go_on():
    made = plan("laptop")
    first, second = (made.trajectories.train(n).settings for n in ("apertus", "apertus-decay"))
    assert second.batch == 2 * first.batch == made.site.config.scale.regime.batch
    # After as many sequences as the first has seen, give or take what fills a batch.
    seen = (second.first - second.data_first) * second.batch
    assert 0 <= seen - first.last * first.batch < second.batch
    assert second.first_tokens == first.last * first.batch * first.context


def test_stage_two_begins_where_the_cosine_is_cut():
    made = plan("laptop")
    trunk, phase = (
        made.trajectories.train(name).settings for name in ("olmo2-7b", "olmo2-7b-ingredient-1")
    )
    cut = learning_rate(trunk.schedule, trunk.last)
    # Published: 6.15e-5 of 3e-4.
    assert cut / trunk.schedule.peak == pytest.approx(6.15e-5 / 3e-4, rel=0.02)
    assert learning_rate(phase.schedule, phase.first) == pytest.approx(cut)
    assert learning_rate(phase.schedule, phase.last) == 0
    rates = [learning_rate(phase.schedule, step) for step in range(phase.first, phase.last + 1)]
    assert all(after < before for before, after in pairwise(rates))
    assert made.corpora.of("olmo2-7b-ingredient-1").name == "code"


@pytest.mark.parametrize("scale", SMALL)
def test_every_phase_has_points_on_its_way_down(scale):
    made = plan(scale)
    timeline = made.site.timeline
    wanted = made.site.config.scale.miniatures.measured_cooldown
    for name, run in runs_of(made).items():
        points = [point.step for point in timeline.measured(name)]
        first, last = run.ends(timeline)
        if isinstance(run, Stage):
            assert points[0] > first and points[-1] == last, name
            assert len(points) >= made.site.config.scale.miniatures.measured_stage, name
            continue
        assert points[-1] == last and points == sorted(set(points)), name
        if hasattr(run, "cooldown_points"):
            start = run.cooldown_start(timeline)
            late = [step for step in points if step >= start]
            steps = last - start
            assert points[0] == first, name
            assert len(late) >= min(wanted, steps) * 0.7, (name, late)
        else:
            assert len(points) >= made.site.config.scale.miniatures.measured, name


@pytest.mark.parametrize(
    ("section", "name", "changes", "words"),
    [
        (
            "runs",
            "smollm3",
            {"family": "smol"},
            "smollm3.family names no known family: 'smol'",
        ),
        ("runs", "smollm3-decay", {"trunk": "apertus-decay"}, "runs.smollm3-decay.trunk names no"),
        ("runs", "smollm3-sft", {"after": "smollm3-sft"}, "runs.smollm3-sft.after names no known"),
        ("runs", "olmo2-7b", {"horizon": 1e12}, "in small: horizon"),
        ("runs", "olmo2-7b", {"horizon": 1e15}, "runs.olmo2-7b, in small: horizon is Fraction"),
        ("runs", "apertus-decay", {"steady": 9.0e12}, "runs.apertus-decay.tokens, but for steady"),
        ("runs", "apertus-decay", {"batch": 10**400}, "runs.apertus-decay.batch is 1000"),
        ("runs", "amber", {"revisions": ["refs/pr/1"]}, "runs.amber.revisions.0"),
        ("runs", "amber-released", {"release_of": "ambre"}, "names no known family: 'ambre'"),
        ("runs", "smollm3-decay", {"averaged": ["x"]}, "averaged must be some of the revisions"),
        ("runs", "constant-3e-3", {"family": "amber"}, "is a name in config/runs.yaml"),
        ("averages", "amber", {"merge": ["smollm3"]}, "is the name of a run and of an average"),
        ("families", "smollm3", {"step_in": "step-"}, "step_in must have one group"),
        ("families", "smollm3", {"step_in": "(("}, "smollm3.step_in is '((': must be a valid reg"),
        ("families", "smollm3", {"tokens_per_step": 1e-300}, "smollm3.tokens_per_step is 1e-300"),
        ("families", "amber", {"warmup": 10**9}, "runs.amber, in small: warmup"),
        ("families", "amber", {"reads_as": "olmo2-7b"}, "families.amber.reads_as names no known"),
        ("families", "amber", {"code": "main"}, "families.amber.code is 'main'"),
        ("families", "amber", {"repository": "https://a/b"}, "families.amber.repository is "),
        ("families", "amber", {"repository": "a/b/c"}, "families.amber.repository is 'a/b/c'"),
        ("families", "amber", {"model": {"architecture": "lama"}}, "model.architecture is 'lama'"),
        ("families", "amber", {"miniature": {"width": "wide"}}, "amber.miniature.width is 'wide'"),
        ("families", "amber", {"miniature": {"heads": 3}}, "heads 3 does not divide width"),
        ("families", "amber", {"miniature": {"deep": 3}}, "no known key of its model: 'deep'"),
    ],
)
def test_a_family_that_does_not_fit_is_one_line(changed, section, name, changes, words):
    def change(families):
        trained = {"schedule": "constant", "tokens": 1e12} if name == "constant-3e-3" else {}
        entry = families[section].setdefault(name, trained)
        for key, value in changes.items():
            entry[key] = entry.get(key, {}) | value if isinstance(value, dict) else value

    with pytest.raises(Problem) as caught:
        changed(change)
    message = str(caught.value)
    assert "\n" not in message and "families.yaml" in message
    assert words in message, message


# Checkpoints on the hub


def test_public_models_have_a_job_a_revision():
    made = plan("paper")
    public = made.site.config.runs.public
    assert len(public) > 20
    for name, run in public.items():
        makers = made.trajectories.makers(name)
        assert len(makers) == len(run.revisions), name
        if not isinstance(run, PublicRun):
            continue
        found = [job.settings.revisions[0] for job in makers]
        assert all(one.step <= two.step for one, two in pairwise(found)), name
        assert all(one.tokens <= two.tokens for one, two in pairwise(found)), name
        assert all(each.lr is not None and each.lr >= 0 for each in found), name


def test_what_authors_averaged_stands_at_no_step():
    made = plan("paper")
    (job,) = made.trajectories.makers("olmo2-7b-released")
    (found,) = job.settings.revisions
    assert job.settings.repository == "allenai/OLMo-2-1124-7B"
    place = (found.revision, found.step, found.tokens, found.lr, found.phase)
    assert place == ("main", None, None, None, "released")
    assert "olmo2-7b-released" in made.site.config.figures["averages"].trajectories
    small = plan("laptop").site
    assert "olmo2-7b-released" in small.left_out["averages"], "no miniature stands for it"


def test_an_uncertain_rate_is_marked(changed):
    made = plan("paper")
    peaks = [
        made.site.timeline.trajectory(name).schedule.peak
        for name in ("olmo2-13b", "olmo2-13b-lr-3e-4")
    ]
    assert peaks == [9e-4, 3e-4]
    assert made.figures.figure("fig02").settings.uncertain_rates == ("OLMo-2 13B",)
    assert made.figures.figure("fig01").settings.uncertain_rates == ()
    sure = changed(lambda f: f["families"]["olmo2-13b"].pop("other_peak_lr"), scale="paper")
    assert sure.figures.figure("fig02").settings.uncertain_rates == ()


def test_averages_take_what_their_authors_took():
    """Not the last listed ones, where they are known; miniatures take the last ones."""
    made = plan("paper")

    def members(name):
        """What is in the last mean of an average, by trajectory."""
        (*_, last) = made.trajectories.makers(name)
        kind = made.site.config.runs.averages[name]
        if isinstance(last.settings, LastSettings):
            return [(kind.trajectory, each) for each in last.settings.windows[-1]]
        found, weights = [], set()
        for each, source in zip(last.settings.ingredients, kind.sources().values(), strict=True):
            is_mean = source in made.site.config.runs.averages
            within = members(source) if is_mean else [(source, each.checkpoint)]
            weights.add(each.weight / len(within))
            found += within
        assert len(weights) == 1, "all checkpoints count alike"
        return found

    steps = (4_360, 4_440, 4_480, 4_520, 4_560, 4_640, 4_680)
    taken = [("smollm3-decay", f"stage3-step-{step}000") for step in steps]
    for last in (2, 4, 7):
        assert members(f"smollm3-last-{last}") == taken[-last:]
    assert sorted(members("olmo2-7b-last-6")) == [
        (f"olmo2-7b-ingredient-{n}", f"stage2-ingredient{n}-step{end}")
        for n in (1, 2, 3)
        for end in ("11931-tokens50B", "7000-tokens30B")
    ]
    longer = ("11000-tokens93B", "21000-tokens177B", "31000-tokens261B", "35773-tokens300B")
    assert sorted(members("olmo2-13b-last-10")) == [
        (f"olmo2-13b-ingredient-{n}", f"stage2-ingredient{n}-step{end}")
        for n, ends in (
            *((n, ("11931-tokens100B", "6000-tokens51B")) for n in (1, 2, 3)),
            (4, longer),
        )
        for end in ends
    ]
    small = plan("laptop")
    kind = small.site.config.runs.averages["smollm3-last-2"]
    measured = small.site.timeline.measured("smollm3-decay")
    assert kind.checkpoints(small.site.timeline) == measured[1:]


@pytest.mark.parametrize(
    ("name", "revision"),
    [
        ("olmo2-1b", "stage1-step1200000-tokens2517B"),
        ("olmo2-7b", "stage1-step702000-tokens2945B"),
        ("olmo2-13b", "stage1-step283000-tokens2374B"),
        ("olmo2-32b", "stage1-step533000-tokens4472B"),
        ("apertus", "step550000-tokens2310B"),
        ("apertus-decay", "step2400000-tokens13112B"),
        ("apertus-decay", "step2600000-tokens14792B"),
    ],
)
def test_tokens_are_those_that_the_revisions_name(name, revision):
    found = plan("paper").site.config.runs.public[name].revisions[revision]
    published = int(re.search(r"tokens(\d+)B", revision)[1]) * 1e9
    assert found.tokens == pytest.approx(published, rel=2e-3)


def test_tokens_of_stage_two_come_after_those_of_stage_one():
    found = plan("paper").site.config.runs.public["olmo2-7b-ingredient-1"].revisions
    last = found["stage2-ingredient1-step11931-tokens50B"]
    assert last.tokens == pytest.approx(3.896e12 + 50e9, rel=1e-4)


def test_sizes_are_those_of_the_real_models():
    """By the models' cards."""
    made = plan("paper")
    real = {
        "smollm3": 3_075_098_624,
        "olmo2-1b": 1_484_916_736,
        "olmo2-7b": 7_298_617_344,
        "olmo2-13b": 13_716_198_400,
        "pythia-160m": 162_322_944,
    }
    for name, parameters in real.items():
        job = made.trajectories.makers(name)[0]
        assert job.settings.parameters == pytest.approx(parameters, rel=1e-3), name


def test_what_is_locked_is_part_of_its_job_alone(changed):
    repository, one = "LLM360/Amber", "ckpt_010"
    file = {"name": "config.json", "size": 3, "digest": "sha256:" + HEX * 4}
    entry = {"commit": "a" * 40, "files": [file]}
    before = changed(scale="paper")
    after = changed(scale="paper", lock={repository: {one: entry}})
    pairs = zip(*(made.trajectories.makers("amber") for made in (before, after)), strict=True)
    differing = [old.name for old, new in pairs if old.spec() != new.spec()]
    assert differing == [f"amber {one}"]
    job = after.trajectories.fetch("amber", one)
    assert job.settings.revisions[0].commit == "a" * 40
    assert [each.size for each in job.settings.revisions[0].files] == [3]


def test_a_tokenizer_is_locked_by_itself(changed):
    """A revision that is locked anew has no text tokenized again."""
    repository = "LLM360/Amber"
    file = {"name": "tokenizer.json", "size": 3, "digest": "sha256:" + HEX * 4}
    last = [*changed(scale="paper").site.config.runs.public["amber"].revisions][-1]
    entries = {last: {"commit": "a" * 40, "files": []}, "tokenizer": {"commit": "c" * 40}}
    entries["tokenizer"]["files"] = [file]
    made = changed(scale="paper", lock={repository: entries})
    assert made.corpora.corpus("amber").settings.tokenizer_revision == "c" * 40
    wanted = {
        each
        for each in to_lock(made.site.config.runs.public.values(), made.site.config.scale)
        if each.repository == repository
    }
    assert Wanted(repository, last, "tokenizer") in wanted
    assert {each.part for each in wanted} == {"checkpoint", "tokenizer"}
    public = made.site.config.runs.public
    names = {*public["amber"].revisions, *public["amber-released"].revisions}
    assert len(wanted) == 1 + len(names)


def trusting(families):
    opensci = families["families"]["opensci-1.7b"]
    opensci.pop("unreadable", None)
    opensci["code"] = "b" * 40


def test_trusted_code_is_part_of_the_jobs_of_its_family(changed):
    with pytest.raises(Problem, match=r"fig11\.quantizers has gptq-4bit, .*code of its own, which"):
        changed(trusting, scale="paper")
    repository, commit = "open-sci/open-sci-ref-v0.01-1.7b-nemotron-hq-1T-4096", "b" * 40
    file = {"name": "modeling.py", "size": 3, "digest": "git-sha1:" + commit}
    entry = {f"code at {commit}": {"commit": commit, "files": [file]}}
    for lock, known in ((None, None), ({repository: entry}, ["modeling.py"])):
        made = changed(trusting, scale="paper", lock=lock, quantizers={"fig11": ["rtn-4bit"]})
        jobs = made.trajectories.makers("opensci-1.7b")
        assert len(jobs) > 5 and {job.settings.code.commit for job in jobs} == {commit}
        found = jobs[0].settings.code.files
        assert (found and [each.name for each in found]) == known


def test_a_figure_goes_without_what_is_not_public():
    made = plan("paper")
    gone = {"fig11", "fig15", "fig23"}
    assert {*plan("laptop").site.config.figures} - {*made.site.config.figures} == gone
    with pytest.raises(Problem, match=r"no checkpoints of some public models, leaves nothing of"):
        Plan(load({"scale": "paper", "seed": 1, "figures": ["fig15"]}, ROOT / "config"), ROOT)


def late(families):
    families["runs"]["smollm3-decay"]["revisions"].insert(0, "stage2-step-4080000")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f["runs"]["amber"].update(revisions=["main"]), r"amber\.revisions .* no step"),
        (lambda f: f["runs"]["amber"]["revisions"].reverse(), r"'ckpt_350' after .*; sort them"),
        (late, r"step 4,080,000, before the end of its trunk at 4,198,0"),
        (
            lambda f: f["runs"]["smollm3-decay"].update(averaged=["stage3-step-4640000"]),
            r"has no average: smollm3-decay has too few checkpoints",
        ),
        *(
            (lambda f, n=n: f["runs"]["apertus-decay"].update(tokens=n), r"runs\.apertus-decay")
            for n in (1e-300, 1.0, 1e300, "many", float("nan"))
        ),
    ],
)
def test_checkpoints_that_do_not_fit_are_one_line(changed, change, words):
    with pytest.raises(Problem, match=words) as caught:
        changed(change, scale="paper")
    assert "\n" not in str(caught.value)


def test_downloads_are_all_that_needs_a_network():
    stages = {job.stage for job in plan("paper").downloads()}
    assert {"train.fetch", "measure.tasks.fetch", "quantize.environment"} <= stages
    assert not plan("smoke").downloads()


def test_public_models_have_corpora_of_their_own_tokenizers():
    made = plan("paper")
    names = {made.corpora.of(name).name for name in made.site.config.runs.public}
    assert {"smollm3", "olmo2-7b", "amber"} <= names and "main" not in names
    settings = made.corpora.corpus("amber").settings
    main = made.corpora.corpus("main").settings
    assert settings.tokenizer == "LLM360/Amber" and settings.sizes["train"] == 0
    assert settings.sources == main.sources
    assert settings.sizes["validation"] == main.sizes["validation"]
    # One set of token files a tokenizer.
    olmo = [name for name in made.site.config.runs.public if name.startswith("olmo2-")]
    assert len(olmo) > 10
    assert {made.corpora.of(name).name for name in olmo} == {"olmo2-7b"}


def test_real_schedules_have_published_rates():
    """Of OLMo-2 32B: about 6.6e-5 where its cosine is cut."""
    found = plan("paper").site.config.runs.public
    last = max(found["olmo2-32b"].revisions.values())
    assert found["olmo2-32b"].learning_rate(last.step) == pytest.approx(6.6e-5, rel=0.02)
    decay = found["smollm3-decay"]
    assert decay.first == pytest.approx(4_198_001, rel=1e-3)
    assert decay.learning_rate(4_720_000) < 2e-6 < math.inf
