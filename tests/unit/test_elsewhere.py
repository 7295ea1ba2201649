"""Checkpoints from elsewhere: which there are in a folder, their steps, rates and phases, and what
is refused."""

import json
import os

import pytest
import torch
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import project
from ptq_dynamics.cli.own import of_guesses
from ptq_dynamics.config import read_yaml
from ptq_dynamics.config.families import Own
from ptq_dynamics.plan.own_checkpoints import sampled_checkpoints
from safetensors.torch import save_file
from support import figure, one_line, plan, tiny_config

CONFIG = {"model_type": "llama", "max_position_embeddings": 32, "vocab_size": 96}
WEIGHTS = {"model.layers.0.mlp.up_proj.weight": torch.zeros(48, 16), "norm.weight": torch.ones(16)}


def checkpoint(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    save_file(WEIGHTS, folder / "model.safetensors")
    return folder


def own(folder, **options):
    return Own(checkpoints={"folder": str(folder), **options.pop("checkpoints", {})}, **options)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["checkpoint-9", "checkpoint-10"], {}),
        (["iter_0000009", "iter_0000010"], {}),
        (["mine-9-of-10", "mine-10-of-10"], {"step": r"mine-(\d+)"}),
    ],
)
def test_steps_are_found_in_names(tmp_path, names, pattern):
    for name in (*names, "logs"):
        checkpoint(tmp_path / name)
    (tmp_path / "logs/config.json").unlink()
    found = sampled_checkpoints(own(tmp_path, checkpoints=pattern))
    assert [(path.name, step) for path, step in found] == list(zip(names, (9, 10), strict=True))


def test_a_sample_has_the_last_checkpoint(tmp_path):
    for step in range(1, 6):
        checkpoint(tmp_path / f"step-{step}")
    for options, steps in (({}, [1, 2, 3, 4, 5]), ({"every": 2, "last": 4}, [3, 5])):
        assert [step for _, step in sampled_checkpoints(own(tmp_path, **options))] == steps


def test_a_trajectory_of_ones_own_in_a_figure(tmp_path):
    """At any scale, beside all that is trained there."""
    for step in range(1, 6):
        checkpoint(tmp_path / f"run/step-{step}")
    rates = tmp_path / "rates.csv"
    rates.write_text("step,lr\n1,1e-3\n2,3e-3\n3,3e-3\n4,1e-3\n5,0")
    entry = {"checkpoints": {"folder": str(tmp_path / "run")}, "rate": str(rates)}
    entry |= {"tokens_per_step": 50}
    query = figure("over_tokens", {"Mine": ["mine"]}, ["loss"])
    added = {"families": {"own": {"mine": entry}}, "figures": {"mine": query}}
    config = tiny_config(tmp_path, **added)
    made = plan("smoke", config, figures=["mine"])
    jobs = made.site.needed(made.targets())
    (job,) = [job for job in jobs if job.stage == "trajectories.local"]
    found = made.site.planned["mine"].planned_checkpoints
    phases = ["warmup", "stable", "stable", "cooldown", "cooldown"]
    assert [each.phase for each in found] == phases and found[-1].tokens == 250
    # What is measured does not depend on them.
    saved = {(each.checkpoint.phase, each.checkpoint.lr) for each in job.settings.checkpoints}
    assert saved == {("checkpoint", None)}
    assert made.figures.figure("mine").settings.series[0].places == found
    assert job.settings.parameters == 48 * 16 + 16
    assert made.site.planned["mine"].shape.model.widths == (16,)
    weights = tmp_path / "run/step-5/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with one_line("step-5/model.safetensors cannot be read"):
        plan("smoke", config, figures=["mine"])


def test_names_without_steps_and_steps_of_two_checkpoints_are_refused(tmp_path):
    checkpoint(tmp_path / "first")
    with one_line("describe the names: --step"):
        sampled_checkpoints(own(tmp_path))
    for name in ("step-1", "iter_1"):
        checkpoint(tmp_path / name)
    with one_line("has the step of"):
        sampled_checkpoints(own(tmp_path))


WRONG = [
    ("--step checkpoint-", "one pair of brackets, around the step"),
    ("--lr nope", "nope is not a CSV file"),
    ("--text missing.txt", "must be a file, a folder, or OWNER/NAME@COMMIT"),
    ("--average 3", "must be 0, or from 2 to 2"),
    ("--names 'a b'", "--names has a, b: must be 1 different names"),
    ("--exclude 'step-*'", "--exclude leaves no checkpoint in "),
    ("--tokens 1", "--tokens must be 256 or more"),
    ("--methods gtpq", "--methods: no method 'gtpq'; the nearest: gptq"),
    ("--tasks word", "--tasks: word needs blocks of 128 tokens, and those of run have 32; "),
    ("--text {text} --tasks word", "--tasks: word is made from docstrings, which --text replaces"),
    ("--methods int8 --bits 4", "--bits 4 fits no given method"),
    ("--bits '4 9'", "--bits is '9': must be from 2 to 8"),
    ("--profile slrm", "--profile: no profile 'slrm'; the nearest: slurm"),
]


@pytest.fixture
def refused(tmp_path, monkeypatch, command):
    """A folder with two checkpoints, and a function that gives the one line that refuses it."""
    for step in (1, 2):
        checkpoint(tmp_path / f"run/step-{step}")
    monkeypatch.chdir(tmp_path)

    def measure(options=""):
        words = f"measure {tmp_path}/run --out {tmp_path}/out {options}"
        status, printed, said = command(words)
        assert status == 1 and said.count("\n") == 1
        return printed + said

    return measure


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_wrong_option_is_one_line(refused, tmp_path, options, words):
    (tmp_path / "text.txt").write_text("Yes.\n\n" * 9000)
    assert words in refused(options.format(text=tmp_path / "text.txt"))


SHORT = [
    ("", 19_999, "--text has 19,999 characters without blank lines; give 20,000 or more\n"),
    ("--tokens 5000", 44_999, "give 45,000 or more, or lower --tokens\n"),
]


@pytest.mark.parametrize(("options", "size", "words"), SHORT)
def test_the_least_text_that_is_stated_is_enough(tmp_path, refused, options, size, words):
    """What is refused then is the other model."""
    weights = tmp_path / "run/step-2/model.safetensors"
    save_file({**WEIGHTS, "norm.weight": torch.ones(17)}, weights)
    text = tmp_path / "text.txt"
    text.write_text("é" * (size - 1) + "\n\n", encoding="utf-8")
    assert refused(f"--text {text} {options}").endswith(words)
    text.write_text("é" * size + "\n\n", encoding="utf-8")
    assert not (tmp_path / "out").exists()  # a failed call leaves nothing
    (tmp_path / "out").mkdir()
    assert "hold different models" in refused(f"--text {text} {options}")
    sizes = read_yaml(tmp_path / "out/config/scales/own.yaml")["corpora"]["main"]
    used = sizes["validation"], sizes["calibration"], sizes["probe"]
    assert size // 6 - 3 < sum(used) <= (size + 1) // 6
    assert not sizes["probe"] and min(used[:2]) > 512


def test_folders_of_one_name_have_projects_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    roots = dict[str, str]()
    for place in ("a/run", "b/run", "c/b/run", "a/run"):
        folder = tmp_path / place
        folder.mkdir(parents=True, exist_ok=True)
        (name,) = project.names_of([place], [])
        with project.claimed(None, [place], [name]) as root:
            entry = {"checkpoints": {"folder": os.path.relpath(folder, root)}}
            (root / "config/families.yaml").write_text(json.dumps({"own": {"run": entry}}))
            made = root / "results/own/measure/run"
            made.mkdir(parents=True, exist_ok=True)
            (made / "record.json").touch()
        assert roots.setdefault(place, str(root)) == str(root)
    assert [*roots.values()] == ["own/run", "own/b-run", "own/b-run-2"]
    assert project.names_of(["a/run", "b/run"], []) == ["a-run", "b-run"]
    with pytest.raises(Problem, match="name each run once"):
        project.names_of(["a/run", "a/run/"], [])


def test_the_page_tells_of_checkpoints_worse_than_a_guess():
    assert not of_guesses("run", [5.7, 3.6], 300)
    said = of_guesses("run", [3.6, 49.1], 300)
    assert "The loss of 1 of 2 checkpoints of run is above 5.704 nats/token" in said


def test_a_folder_of_text_says_what_is_not_read(tmp_path, refused):
    texts = tmp_path / "texts"
    (texts / "more").mkdir(parents=True)
    for name in (".hidden", "a.txt", "rows.ndjson"):
        (texts / name).write_text(json.dumps({"text": "a" * 10}))
    said = refused(f"--text {texts}")
    assert "--text: left out are .hidden, a.txt, more\n" in said
    assert "--text has 10 characters" in said


def test_a_table_is_not_read_as_plain_text(tmp_path, refused):
    (tmp_path / "a.tsv").write_text("b\ta\n1\t2")
    assert "no text in 'text'" in refused(f"--text {tmp_path}/a.tsv")


def test_defective_checkpoints_of_a_second_run_are_left_out(tmp_path, refused):
    for name in ("step-1", "step-2", "sft-step-3"):
        checkpoint(tmp_path / "other" / name)
    broken = {**WEIGHTS, "norm.weight": torch.full((16,), torch.nan)}
    save_file(broken, tmp_path / "other/step-2/model.safetensors")
    printed = refused(f"{tmp_path / 'other'} --average 3")
    assert "other/step-2 is left out: it has values that are not finite" in printed
    assert "sft-step-N and step-N of " in printed and "are measured as one run" in printed
    assert "--average is 3" in printed
