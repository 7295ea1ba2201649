"""Configuration: every scale, keys and schemas, and one clear line for bad input."""

import json
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from subprocess import run

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ptq_dynamics import cli
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.controlled import RATES
from ptq_dynamics.config import TYPES, load, read_yaml, schema
from ptq_dynamics.config.loading import Choice, expand
from ptq_dynamics.plan import Plan
from support import MAKE, ROOT, SCALE, edit_yaml, figure, put, tiny_config
from typer.main import get_command

CONFIG = ROOT / "config"
SMOKE = "scales/smoke"
# What pydantic calls the alternatives of a type, and other words of Python.
FOREIGN = ["pydantic", "constrained", "literal[", "list[", "dict[", "AtMost", "instance of"]
FOREIGN += ["Input", "[key]", "ictionary", "valid tuple", "whole", "_kind_of", "Value error"]


def outcome(folder, **choice):
    return Plan(load({"scale": "smoke", "seed": 100, "figures": "all", **choice}, folder), ROOT)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(CONFIG, tmp_path / "config")


def refused(folder, words, **choice):
    """The message of what cannot be planned: one line with some words and none of Python."""
    with pytest.raises(Problem) as caught:
        outcome(folder, **choice)
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert not missing and "\n" not in message, f"{missing} not in: {message}"
    assert not [word for word in FOREIGN if word in message], message
    return message


# Files


FILES = {name: f"{name}.yaml" for name in TYPES if (CONFIG / f"{name}.yaml").exists()}
FILES |= {"scale": f"{SMOKE}.yaml"}


@pytest.mark.parametrize("name", FILES)
def test_files_are_valid_by_their_schemas(name):
    """By another implementation of schemas; but for grids, which are no schema's."""
    found = schema(name)
    if name not in ("runs", "families"):
        Draft202012Validator(found).validate(read_yaml(CONFIG / FILES[name]))


# Bad input


# What a user may write, and below it words of the message besides the file's name.
BAD = """
runs: runs.constant-3e-3.peak_rl = 1.0e-3
    runs.constant-3e-3.peak_rl: unknown key; did you mean 'peak_lr'? … allowed:

scales/smoke: models.moe = {architecture: llama, layers: 2}
    models.moe.width: is required and missing

runs: runs.constant-3e-3.length = 1/0
    constant-3e-3.length is '1/0': must be a number or a fraction

figures: fig04.curves.Stable = [constant]
    fig04.curves … no trajectory 'constant' … nearest: moe-constant

figures: fig05.metrics = [loss, gradient_norm, quantization_error]
    fig05 … options.x is 'budget', but gradient_norm needs 'tokens'; drop one

scales/smoke: landscape.blocks = 65
    landscape needs 2,080 tokens in blocks of 32 (model 'main') … validation has 2,048

scales/smoke: curvature.batch = 3
    curvature.batch 3 does not divide its 8 blocks … change one of the two

runs: runs.larger-batch.batch_factor = 0.3
    larger-batch.batch_factor is 3/10, which makes 2.4 sequences of a batch of 8

scales/smoke: models.moe.key_value_heads = 3
    models.moe … key_value_heads 3 does not divide heads 2

quantizers: gptq-4bit.group_size = 48
    gptq-4bit.group_size is 48 … does not divide the layer width 32 … {at_most: N}

tables: families.quantizers = [awq-4bit]
    families.quantizers has awq-4bit, which cannot quantize olmo2-1b

runs: runs.constant-3e-3.length = 150/190
    runs.rainbow-172.at is step 172 … constant-3e-3 keeps no state

figures: fig04.title = At {peak_lr of constant-3e3}
    fig04.title: no run or average 'constant-3e3'; the nearest: constant-3e-3

runs: runs.kumar-{size}-wsd-{at}.over.cooldown = [10, 20]
    runs.kumar-{size}-wsd-{at} and another entry generate 'kumar-70m-wsd-1.5'

runs: runs.kumar-{size}-wsd-{at}.over.at = [1.5, late]
    runs.kumar-70m-wsd-late.at is 'late/190': must be a number or a fraction
"""
# The same of the tiny configuration, in which a branch has checkpoints at 12, 14, 16, 18 and 20. A
# merge has no step, so none lies before it.
TINY = """
runs: averages.lawa-of-branch.window = 6
    (5 from step-0000012 to step-0000020, 3 measured)

runs: averages.line-of-averages.end = kumar-70m-constant
    whose models differ in shape

runs: averages.merge.merge = [trunk, merge]
    averages.merge depends on itself

runs: averages.last-of-branch.last = 4
    has no average

runs: averages.lawa-at-12.at = 13/190
    weights is lawa-at-12; name an average that ends at step 12

runs: runs.rainbow-172.objective = {kind: answers}
    rainbow-172.objective is 'answers' … needs dialogues

runs: runs.{model}-wsd.objective = {kind: quantization-aware, bits: 4, at_most: 8}
    moe-wsd.objective is 'quantization-aware' … no experts

families: runs.smollm3-long-32k.after = smollm3-apo
    after: no run to follow

families: runs.smollm3-sft.corpus = code
    smollm3-sft.objective is 'answers'

scales/smoke: corpora.main.source_code = true
scales/smoke: corpora.code.packages = [Jinja2]
    corpora.code.packages has 'Jinja2', which corpora.main

scales/smoke: tasks.others = [Click]
    others has 'Click', which corpora.descriptions trains on

scales/smoke: tasks.context = 4096
    tasks.context is 4,096; … reads
"""
CASES = [(own, case) for own, text in (("", BAD), ("tiny", TINY)) for case in text.split("\n\n")]


def edit(config, changes):
    """Make changes by file and keys."""
    for place, value in changes.items():
        file, _, path = place.partition(": ")
        edit_yaml(config / f"{file}.yaml", partial(put, path=path.split("."), value=value))


@pytest.mark.parametrize(("own", "case"), CASES, ids=[case.split()[1] for _, case in CASES])
def test_bad_input_is_one_line_with_file_key_value_and_what_is_allowed(tmp_path, own, case):
    *lines, words = case.strip().splitlines()
    config = tiny_config(tmp_path) if own else shutil.copytree(CONFIG, tmp_path / "config")
    edit(config, {key: yaml.safe_load(text) for key, text in (line.split(" = ") for line in lines)})
    message = refused(config, words.strip().split(" … "))
    assert f"config/{lines[0].split(':')[0]}.yaml: " in message


def test_the_corpus_of_a_branch_has_the_tokenizer_of_its_trunk(tmp_path):
    foreign = {**SCALE["corpora"]["main"], "vocabulary": 301}
    config = tiny_config(tmp_path, {"corpora": {"foreign": foreign}})
    edit(config, {"runs: runs.branch.corpus": "foreign"})
    refused(config, ["branch.corpus is 'foreign', whose tokenizer is not that of 'main'"])


def test_leaving_out_one_side_of_a_comparison_is_refused_where_it_is_drawn(folder):
    out = {"larger-batch-decay": "why"}
    edit(folder, {f"{SMOKE}: regime.left_out": out})
    words = ["smoke.yaml: without regime.left_out, figure beyond-bits: ", "must be 'Decay'"]
    refused(folder, words, figures="beyond-bits")
    assert outcome(folder, figures="fig04").targets()


def nodes(content, place=()):
    """Every key and index of a file, as the path to it; of a grid, no more than its lists."""
    inner = content if isinstance(content, dict) else {}
    inner = dict(enumerate(content)) if isinstance(content, list) else inner
    for key, value in inner.items():
        yield (*place, key), value
        if key != "over":
            yield from nodes(value, (*place, key))


READ = ["config.yaml", "runs.yaml", "quantizers.yaml", "figures.yaml", "backends.yaml"]
READ += [f"{SMOKE}.yaml"]
# Options of llm-compressor's modifiers are the library's.
KEYS = [
    (file, key)
    for file in READ
    for key, _ in nodes(read_yaml(CONFIG / file))
    if "modifiers" not in key[:-1]
]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KEYS), st.sampled_from([[[{}]], {"no such key": 1}, {3: None}]))
def test_a_broken_value_of_any_key_is_one_line_with_file_and_key(tmp_path_factory, where, broken):
    file, key = where
    folder = shutil.copytree(CONFIG, tmp_path_factory.mktemp("broken") / "config")
    # Through JSON, so that what anchors share is changed in one place alone.
    content = json.loads(json.dumps(read_yaml(folder / file)))
    put(content, key, broken)
    (folder / file).write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(Problem) as caught:
        outcome(folder, **(content if file == "config.yaml" else {}))
    message = str(caught.value)
    # What a grid makes is called by its own name.
    is_grid = any("{" in str(part) for part in key)
    dotted = key[0] if is_grid else ".".join(map(str, key))
    assert re.search(rf"config/{file}: {re.escape(dotted)}[:. ]", message), message
    told = re.sub(r"\(its keys: .*?\)", "", message)
    assert "\n" not in message and not [word for word in FOREIGN if word in told], message


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"figures": "fig04 fig4"}, "FIGURES: no figure 'fig4'; the nearest: fig04, "),
        ({"figures": ""}, "FIGURES is []: must be 'all' or must have at least 1 entries"),
        ({"more_seeds": "7,8"}, "SEEDS is '7,8': must be an integer"),
        ({"scale": "smok"}, "SCALE: no scale 'smok'; the nearest: smoke"),
        ({"seed": -1}, "seed is -1: must be greater than or equal to 0"),
        ({"scales": "smoke"}, "scales: unknown key; did you mean 'scale'?"),
    ],
)
def test_a_bad_choice_is_one_line_that_begins_with_its_name(choice, words):
    assert refused(CONFIG, [words], **choice).startswith(words)


def test_an_unknown_file_is_refused(folder):
    (folder / "runs.yml").touch()
    refused(folder, ["config/runs.yml: no file of configuration ", "the nearest: runs.yaml"])


def test_a_model_of_one_scale_stops_only_figures_that_show_it(folder):
    """At other scales; what no scale has is a mistake."""
    run = {**read_yaml(CONFIG / "runs.yaml")["runs"]["constant-3e-3"], "model": "big"}
    edit(folder, {"runs: runs.long": run})
    shown = figure("over_tokens", {"Long": ["long"]}, ["loss"])
    edit(folder, {"figures: longest": shown})
    refused(folder, ["config/runs.yaml: runs.long.model: no model 'big'; the nearest: "])
    main = read_yaml(CONFIG / "scales/laptop.yaml")["models"]["main"]
    edit(folder, {"scales/laptop: models.big": main})
    assert outcome(folder).site.config.chosen == outcome(CONFIG).site.config.chosen
    assert outcome(folder, scale="laptop").site.config.chosen[-1] == "longest"
    refused(folder, ["figure longest (", "smoke.yaml has no model 'big'"], figures="longest")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", ["runs.yaml is not valid YAML"]),
        ("a: 1\nb:\n  - {c: 1}\n  - c: 1\n    c: 1", ["line 5 repeats the key c"]),
        ("null", ["runs.yaml"]),
        (None, ["runs.yaml is missing", "restore it with git checkout"]),
    ],
)
def test_a_damaged_file_is_one_line(folder, text, words):
    if text is None:
        (folder / "runs.yaml").unlink()
    else:
        (folder / "runs.yaml").write_text(text)
    refused(folder, words)


# Words


def test_rates_in_figures_and_claims_follow_the_runs(folder):
    changes = {"runs: runs.constant-1e-2.peak_lr": 0.02, "runs: runs.constant-3e-3.peak_lr": 0.0025}
    changes |= {"families: families.olmo2-7b.peak_lr": 7e-4}
    edit(folder, {**changes, "figures: fig01.title": "{ peak_lr  of olmo2-7b }, {x}"})
    plans = outcome(folder, figures="all")
    figures = plans.site.config.figures
    labels = ["LR = 3e-4", "LR = 1e-3", "LR = 2.5e-3", "LR = 2e-2"]
    assert [*figures["fig06"].curves] == labels == [*figures["fig25"].curves]
    assert next(iter(figures["fig22"].curves)) == "WSD, LR = 2.5e-3"
    assert "Constant learning rate 2.5e-3 with" in figures["fig04"].caption
    assert figures["fig01"].title == "7e-4, {x}"
    assert [*figures["fig19"].curves][:2] == ["λ = 0", "λ = 5e-4"]
    assert plans.figures.figure("fig06").settings.rates == (3e-4, 3e-2)
    numbers = plans.claims.judge().settings.numbers
    assert [numbers["peak_lr"][name] for name in RATES] == [3e-4, 1e-3, 2.5e-3, 2e-2]


def test_two_curves_of_one_rate_are_a_problem(folder):
    edit(folder, {"runs: runs.constant-1e-3.peak_lr": 3e-3})
    refused(folder, ["config/figures.yaml: fig06.curves has 'LR = 3e-3' twice"])


# Grids


def test_a_grid_is_every_combination_of_its_lists():
    sizes, rates, plain = ["s", "m"], [1e-3, 2e-3], {"model": "main"}
    grid = {"over": {"size": sizes, "rate": rates}, "model": "{size}", "batch": 3}
    grid |= {"state_at": ["{rate}/190", 1], "optimizer": {"kind": "a-{size}-{rate}"}}
    found = expand({"before": plain, "x-{rate}-{size}": grid, "after": plain}, "runs.yaml: runs")
    expected = {
        f"x-{rate}-{size}": {
            "model": size,
            "batch": 3,
            "state_at": [f"{rate}/190", 1],
            "optimizer": {"kind": f"a-{size}-{rate}"},
        }
        for size in sizes
        for rate in rates
    }
    assert found == {"before": plain, **expected, "after": plain}
    assert list(found) == ["before", *expected, "after"]


# Names


NAMED = [("runs.yaml", ("runs",)), ("runs.yaml", ("averages",)), ("quantizers.yaml", ())]
NAMED += [("figures.yaml", ()), (f"{SMOKE}.yaml", ("models",)), (f"{SMOKE}.yaml", ("corpora",))]
BAD_NAMES = ["../up", ".hidden", "-option", "line\n", ""]


@pytest.mark.parametrize(
    ("where", "name"),
    [*((NAMED[0], name) for name in BAD_NAMES), *((at, "../up") for at in NAMED[1:])],
)
def test_a_name_that_could_do_harm_is_a_problem(folder, where, name):
    file, place = where

    def rename(content):
        for key in place:
            content = content[key]
        # Miniatures are like main.
        content[name] = content.pop(next(key for key in content if key != "main"))

    edit_yaml(folder / file, rename)
    with pytest.raises(Problem, match=f"config/{file}"):
        load({"scale": "smoke", "seed": 100, "figures": "all"}, folder)


# The command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare . ../docs", "docs/measurements.csv is missing"),
        ("adopt ../tests", "tests has no results/laptop"),
        ("trace nowhere", "docs/nowhere does not exist"),
        ("statsu", "No such command 'statsu'"),
        ("dev cost --bogus", "see ptq-dynamics dev cost --help"),
        ("dev accept . --reason ' '", "--reason is empty"),
        ("audit --rerun x", "'--rerun': Input should be a valid integer"),
    ],
)
def test_paths_are_as_typed_and_a_wrong_argument_is_one_line(command, monkeypatch, words, said):
    monkeypatch.chdir(ROOT / "docs")
    status, _, line = command(words)
    assert status == (2 if "see ptq-dynamics" in line else 1)
    assert said in line and line.startswith("error: ") and line.count("\n") == 1


@pytest.mark.parametrize("verb", [*cli.VERBS, *cli.MAINTAINERS], ids=lambda verb: verb.__name__)
def test_the_help_of_a_verb_shows_an_example_that_is_taken(verb):
    group = get_command(cli.application())
    words = shlex.split(verb.__doc__.split("Example: ptq-dynamics ")[1])
    if verb in cli.MAINTAINERS:
        assert words.pop(0) == "dev"
        group = group.commands["dev"]
    command = group.commands[words.pop(0)]
    assert command.callback.__wrapped__ is verb
    command.make_context("", words, obj=Path())


def make(*words):
    return run([*MAKE, *words], cwd=ROOT, capture_output=True, text=True)


def test_make_refuses_what_would_change_nothing():
    done = make("figures", "SCAEL=smoke")
    said = "make has no variable 'SCAEL'; it has: SCALE FIGURES"
    assert done.returncode and said in done.stderr, done.stderr


def test_a_switch_is_on_or_off_by_its_value():
    choice = {"scale": "smoke", "seed": 1, "figures": "fig04"}
    for value, is_deep in (("0", False), ("no", False), ("1", True), ("yes", True)):
        assert Choice(**choice, deep=value).deep is is_deep
    with pytest.raises(Problem, match=r"^DEEP is 'perhaps': must be true or false$"):
        load({**choice, "deep": "perhaps"}, CONFIG)
    for value, words in (("no", 'deep="no"'), ("", "")):
        assert f'figures="all"  {words} -- ' in make("-n", "figures", f"DEEP={value}").stdout


@pytest.mark.parametrize(("executor", "is_slurm"), [("slurm", True), ("slurm-other", False)])
def test_a_profile_for_slurm_gets_its_packages_by_what_it_says(tmp_path, executor, is_slurm):
    """Under any name, and anywhere."""
    (lab := tmp_path / "it's a lab").mkdir()
    (lab / "profile.v9+.yaml").write_text(f"jobs: 9\nexecutor: {executor}  # ours\n")
    said = make("-n", "figures", f"PROFILE={lab}", f"VENV={tmp_path}/venv").stdout
    assert f'--workflow-profile "{lab}"' in said
    assert (f"--target {tmp_path}/venv/slurm" in said) is is_slurm
