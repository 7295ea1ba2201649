"""What an edit rebuilds: exactly what depends on it."""

import os
import re
from pathlib import Path

import pytest
from project import SEED, TABLE
from support import edit_yaml

PACKAGE = "workflow/ptq_dynamics"
FIG04 = "figures/layouts/over_tokens.py"
MODULE_COMMENT = "# A comment at the end, and more of it.\n"


def rules(stale):
    return {job.split(":")[0] for job in stale}


def train_jobs(project):
    """All runs behind the chosen figures, as jobs."""
    figures = (project.plan.figures.figure(name) for name in project.chosen)
    pattern = re.compile(r"results/smoke/train/([^/]+)/")
    found = {match[1] for job in figures for path in job.needs if (match := pattern.match(path))}
    return {f"train:{name},101" for name in found}


def touch(path, seconds=3600):
    now = path.stat()
    os.utime(path, ns=(now.st_atime_ns, now.st_mtime_ns + seconds * 10**9))


def append(path):
    """Add what runs when the module is imported."""
    path.write_text(path.read_text() + "\nassert True\n")


@pytest.fixture(scope="module", autouse=True)
def _fresh(built):
    """Every test leaves all as it was, on which the next one counts."""
    yield
    assert built.stale() == set(), "a test left something behind"


# Snakemake


PLANNED = {
    "training": (f"{PACKAGE}/train/train.py", append),
    "style": (f"{PACKAGE}/figures/style.py", append),
    "quantizer": (
        "config/quantizers.yaml",
        # Its further draws take it over.
        lambda path: path.write_text(path.read_text().replace("damping: 0.05", "damping: 0.02", 1)),
    ),
    "manifest": ("results/smoke/average/lawa-20/seed-101/all/manifest.json", Path.unlink),
    "picture": ("figures/smoke/fig04.png", Path.unlink),
}


@pytest.mark.parametrize("name", PLANNED)
def test_snakemake_plans_what_is_due(built, name):
    file, change = PLANNED[name]
    with built.edited(file) as (path,):
        change(path)
        due = built.stale()
        assert due and built.planned() - {"collect"} == due


# Nothing


def test_touching_every_file_runs_nothing(built):
    places = ("Snakefile", "config", "profiles", "workflow", "results", "figures")
    files = [
        path
        for place in places
        for path in ([built.folder / place, *sorted((built.folder / place).rglob("*"))])
        if path.is_file()
    ]
    assert len(files) > 300
    before = {path: path.stat() for path in files}
    for n, path in enumerate(files):
        touch(path, 3600 + n % 7)
    assert built.stale() == set()
    for path, times in before.items():
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_comments_docstrings_and_layout_in_every_module_run_nothing(built):
    modules = [name for name in built.modules() if (built.folder / name).stat().st_size]
    with built.edited(*modules) as paths:
        for path in paths:
            text = path.read_text()
            if text.startswith('"""'):
                text = text.replace('"""', '"""Another beginning. ', 1)
            text = text.replace("\n\n\n", "\n\n\n\n# Between.\n\n")
            path.write_text(text + MODULE_COMMENT)
        assert built.stale() == set()


def test_comments_in_configuration_and_rules_run_nothing(built):
    names = ["Snakefile", *(f"workflow/rules/{n}.smk" for n in ("train", "quantize", "figures"))]
    names += [f"config/{n}.yaml" for n in ("config", "runs", "quantizers", "figures")]
    with built.edited(*names, "config/scales/smoke.yaml") as paths:
        for path in paths:
            path.write_text(path.read_text() + "\n" + MODULE_COMMENT)
        assert built.stale() == set()


# Code


def test_moved_stages_and_modules_run_nothing(built):
    """Where code stands shapes no result."""
    moved = {"loss": ("measure", "block_losses_of"), "average": ("trajectories", "averaging")}
    modules = [name for name in built.modules() if (built.folder / name).stat().st_size]
    with built.edited(*modules) as paths:
        for old, (room, new) in moved.items():
            for path in paths:
                text = re.sub(rf"\b{room}\.{old}\b", f"{room}.{new}", path.read_text())
                text = re.sub(rf"(from ptq_dynamics\.{room} import) {old}\b", rf"\1 {new}", text)
                path.write_text(text)
        homes = [built.folder / PACKAGE / room / f"{old}.py" for old, (room, _) in moved.items()]
        for path, (_, new) in zip(homes, moved.values(), strict=True):
            path.rename(path.with_stem(new))
        try:
            assert built.stale() == set()
        finally:
            for path, (_, new) in zip(homes, moved.values(), strict=True):
                path.with_stem(new).rename(path)


def edit(built, module):
    with built.edited(f"{PACKAGE}/{module}") as (path,):
        append(path)
        return built.stale()


def figure_jobs(built):
    return {f"figure:{name}" for name in built.chosen}


def test_what_no_job_reaches_runs_nothing(built):
    """But for the modules that settings select by name, which count whole."""
    whole = ("/architectures/", "/objectives/", "/optimizers/", "/foreign/")
    names = [name for name in built.modules() if not any(part in name for part in whole)]
    with built.edited(*names) as paths:
        for path in paths:
            path.write_text(
                path.read_text() + "\n\ndef _new():\n    return EDITED\n\n\nEDITED = True\n"
            )
        assert built.stale() == set()


def test_an_edit_of_one_function_rebuilds_what_calls_it(built):
    """A figure reads names of checkpoints from the module that trains nothing."""
    with built.edited(f"{PACKAGE}/train/schedules.py") as (path,):
        built.replace(path, "def learning_rate(", "EDITED = 1\n\n\ndef learning_rate(")
        assert built.stale() == set()
        built.replace(path, "EDITED = 1\n\n\ndef learning_rate(", "def learning_rate(*_, ")
        assert train_jobs(built) <= built.stale()


def test_an_edit_of_a_layout_redraws_its_figures(built):
    figures = built.plan.site.config.figures
    drawn = {name for name in built.chosen if figures[name].layout == figures["fig04"].layout}
    assert edit(built, FIG04) == {f"figure:{name}" for name in drawn} != figure_jobs(built)


def test_an_edit_of_the_style_redraws_all_figures(built):
    assert edit(built, "figures/style.py") == figure_jobs(built)


def test_an_edit_of_training_retrains(built):
    stale = edit(built, "train/train.py")
    assert train_jobs(built) <= stale
    assert "corpus" not in rules(stale)
    # What follows may or may not change: it waits for the bytes of the new runs.
    assert {"train", "average", "quantize", "evaluate", "figure"} == (rules(stale))


def test_an_edit_of_the_schedules_retrains(built):
    stale = edit(built, "train/schedules.py")
    assert train_jobs(built) <= stale


def test_an_edit_of_gptq_quantizes_again_and_trains_nothing(built):
    stale = edit(built, "quantize/gptq.py")
    quantized = {job for job in stale if job.startswith("quantize:")}
    assert quantized and all(",gptq-" in job for job in quantized), quantized
    assert rules(stale) == {"quantize", "evaluate", "figure"}
    for job in stale:
        if job.startswith("evaluate:"):
            assert ",gptq-" in job, "a full-precision evaluation does not depend on GPTQ"


def test_an_edit_of_another_method_runs_nothing(built):
    assert edit(built, "quantize/rtn.py") == set()


def test_an_edit_of_the_evaluation_evaluates_again(built):
    stale = edit(built, "measure/loss.py")
    assert not rules(stale) & {"train", "average", "quantize", "corpus"}
    assert "evaluate:constant-3e-3,101,fp,all" in stale


def test_an_edit_of_averaging_averages_again(built):
    stale = edit(built, "train/average.py")
    assert {job for job in stale if job.startswith("average")} == {
        "average:lawa-5,101,all",
        "average:lawa-20,101,all",
    }
    assert not rules(stale) & {"train", "corpus"}
    assert all("lawa" in job for job in stale if job.startswith(("quantize", "evaluate")))


@pytest.mark.parametrize(
    "module",
    [
        "graph/figures.py",
        "graph/checks.py",
        "engine/execute.py",
        "engine/manifest.py",
        "engine/context.py",
    ],
)
def test_an_edit_of_what_decides_or_serves_runs_nothing(built, module):
    assert edit(built, module) == set()


# Configuration


def test_a_title_or_caption_redraws_nothing(built):
    for key in ("caption", "title"):
        with built.edited("config/figures.yaml") as (path,):
            edit_yaml(path, lambda found, key=key: found["fig06"].update({key: "Other words"}))
            assert built.stale() == set(), key


def test_an_option_of_a_layout_redraws_its_figure(built):
    with built.edited("config/figures.yaml") as (path,):
        change = {"losses_of": ["gptq-3bit"]}
        edit_yaml(path, lambda found: found["fig06"].update({"options": change}))
        assert built.stale() == {"figure:fig06"}


def test_a_new_run_brings_its_own_jobs(built):
    new = {"trunk": "constant-3e-3", "at": "100/190", "cooldown": "18/190"}
    with built.edited("config/runs.yaml", "config/figures.yaml") as (runs, figures):
        edit_yaml(runs, lambda found: found["runs"].update({"rainbow-100": new}))
        assert built.stale() == set(), "a run that no figure shows is not built"
        edit_yaml(figures, lambda found: found["fig04"]["curves"]["Decay"].append("rainbow-100"))
        assert built.stale() == {
            "train:rainbow-100,101",
            "quantize:rainbow-100,101,gptq-4bit,all",
            *(f"evaluate:rainbow-100,101,{method},all" for method in ("fp", "gptq-4bit")),
            "figure:fig04",
        }


def test_a_change_of_one_run_rebuilds_that_run(built):
    with built.edited("config/runs.yaml") as (path,):
        change = {"shape": "1-sqrt"}
        edit_yaml(path, lambda found: found["runs"]["rainbow-036"].update(change))
        stale = built.stale()
    assert {job for job in stale if job.startswith("train:")} == {"train:rainbow-036,101"}
    assert {job for job in stale if job.startswith("figure:")} == {"figure:fig04"}
    assert all("rainbow-036" in job for job in stale if rules({job}) & {"quantize", "evaluate"})


def test_another_seed_retrains_and_keeps_the_corpus(built):
    with built.edited("config/config.yaml") as (path,):
        built.replace(path, f"seed: {SEED}", f"seed: {SEED + 1}")
        stale = built.stale()
    assert {job.replace(f",{SEED}", f",{SEED + 1}") for job in train_jobs(built)} <= stale
    assert "corpus" not in rules(stale)


SCALE_CHANGES = {
    "evaluation": ({"blocks": 60, "batch": 64}, {"evaluate", "figure"}),
    "description": ("another scale", {"figure"}),
    "calibration": (
        {"blocks": 30, "batch": 16},
        {"quantize", "evaluate", "figure"},
    ),
    "log_every": (
        5,
        {"train", "average", "quantize", "evaluate", "figure"},
    ),
    "threads": (2, set()),
    "warm": (False, set()),
}


@pytest.mark.parametrize("key", SCALE_CHANGES)
def test_a_number_of_the_scale_rebuilds_what_depends_on_it(built, key):
    value, expected = SCALE_CHANGES[key]
    with built.edited("config/scales/smoke.yaml") as (path,):
        edit_yaml(path, lambda found: found.update({key: value}))
        assert rules(built.stale()) == expected


def test_more_corpus_changes_everything(built):
    with built.edited("config/scales/smoke.yaml") as (path,):
        edit_yaml(path, lambda found: found["corpora"]["main"].update({"vocabulary": 321}))
        stale = built.stale()
    assert "corpus:main" in stale and train_jobs(built) <= stale


# Files


def test_a_deleted_picture_is_drawn_again(built):
    with built.edited("figures/smoke/fig04.png") as (path,):
        path.unlink()
        assert built.stale() == {"figure:fig04"}


def test_a_deleted_table_is_collected_again(built):
    with built.edited(TABLE) as (path,):
        path.unlink()
        assert built.planned() == {"collect"}
