"""Configuration: the schema, every scale, and one clear line for every kind of bad input."""

import json
import re
import shutil
from contextlib import contextmanager
from fractions import Fraction

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ptq_dynamics.base.fields import Share
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import SCALES, load, read_yaml
from ptq_dynamics.config.grids import expand
from ptq_dynamics.graph import Plan
from pydantic import TypeAdapter, ValidationError
from support import ROOT, edit_yaml, plan, python

CONFIG = ROOT / "config"
share = TypeAdapter(Share)


# Schemas


def test_the_schema_files_are_those_of_the_types(tmp_path):
    assert python(["-m", "ptq_dynamics.cli", "schema"], tmp_path).returncode == 0
    written = {path.name: path.read_text() for path in (tmp_path / "config/schemas").iterdir()}
    kept = {path.name: path.read_text() for path in (CONFIG / "schemas").iterdir()}
    assert kept == written, "run ptq-dynamics schema"
    page = "docs/configuration.md"
    assert (ROOT / page).read_text() == (tmp_path / page).read_text(), "run ptq-dynamics schema"


def test_the_reference_has_every_key_of_every_file():
    """By the schemas, with headings that its links lead to."""
    text = (ROOT / "docs/configuration.md").read_text()
    heads = re.findall(r"^##+ (.+)$", text, re.M)
    assert len(heads) == len(set(heads))
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors
    sections = re.split(r"^##+ ", text, flags=re.M)
    tables = {
        part.partition("\n")[0]: set(re.findall(r"^\| `(\w+)` \|", part, re.M)) for part in sections
    }
    for path in (CONFIG / "schemas").iterdir():
        schema = json.loads(path.read_text())
        for name, each in schema.get("$defs", {}).items():
            known = [tables.get(head) for head in (name, f"{name}, a layout")]
            assert set(each.get("properties", {})) in known, (path.name, name)


def validator(file):
    """The schema that a file names in its first line, by another implementation of schemas."""
    first = (CONFIG / file).read_text().splitlines()[0]
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)[1]
    return Draft202012Validator(json.loads(((CONFIG / file).parent / named).read_text()))


EVERY = sorted(str(path.relative_to(CONFIG)) for path in CONFIG.rglob("*.yaml"))


@pytest.mark.parametrize("file", EVERY)
def test_every_file_names_its_schema_and_is_valid_by_it(file):
    assert len(EVERY) == 11 + len(SCALES)
    Draft202012Validator.check_schema(validator(file).schema)
    validator(file).validate(read_yaml(CONFIG / file))


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_loads(scale):
    loaded = plan(scale)
    assert loaded.site.config.choice.scale == scale
    assert {"fig04", "fig06", "fig07"} <= set(loaded.figures.chosen)


def test_figures_are_chosen_by_name_or_all():
    chosen = {
        given_: outcome(CONFIG, figures=value).figures.chosen
        for given_, value in {"words": "fig04 fig07", "list": ["fig07"], "one": "fig06"}.items()
    }
    assert chosen == {"words": ["fig04", "fig07"], "list": ["fig07"], "one": ["fig06"]}


# Shares


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_share_is_the_exact_fraction(numerator, denominator):
    if numerator > denominator:
        with pytest.raises(ValidationError):
            share.validate_python(f"{numerator}/{denominator}")
        return
    assert share.validate_python(f"{numerator}/{denominator}") == Fraction(numerator, denominator)


@given(st.decimals("0.0001", "1", places=4), st.integers(1, 200))
def test_a_share_may_have_decimals(decimal, denominator):
    expected = Fraction(decimal) / denominator
    assert share.validate_python(f"{decimal}/{denominator}") == expected
    assert share.validate_python(str(decimal)) == Fraction(decimal)


def test_a_number_is_the_decimal_that_it_is_written_as():
    assert share.validate_python(0.1) == Fraction(1, 10)
    assert share.validate_python(1) == 1


@pytest.mark.parametrize("text", ["", "a", "1/0", "1/2/3", "0", "-1/2", "3/2", "1 / x", None, [1]])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ValidationError):
        share.validate_python(text)


# Bad input: file, change, and what the message must hold besides the file's name.


def put(*path, value):
    """A change that sets the value at a path of keys; `del` removes the key."""

    def change(content):
        for key in path[:-1]:
            content = content[key]
        if value == "del":
            del content[path[-1]]
        else:
            content[path[-1]] = value

    return change


TRUNK = ("runs", "constant-3e-3")
BRANCH = ("runs", "rainbow-036")
SMOKE = "scales/smoke.yaml"
BAD = {
    # The keys of one file.
    "state beyond the end": (
        "runs.yaml",
        put(
            *TRUNK,
            value={"schedule": "constant", "peak_lr": 1e-3, "length": 0.5, "state_at": [0.6]},
        ),
        ["runs.constant-3e-3", "state_at has 3/5, beyond its length 1/2"],
    ),
    "context of one token": (
        SMOKE,
        put("models", "main", "context", value=1),
        ["models.main.context is 1", "greater than or equal to 2"],
    ),
    "more eigenvalues than iterations": (
        SMOKE,
        put("curvature", "spectrum", value=10**6),
        ["curvature", "spectrum 1000000 is more than what max_iterations "],
    ),
    "unknown key": (
        "runs.yaml",
        put(*TRUNK, "peak_rl", value=1e-3),
        ["runs.constant-3e-3.peak_rl: unknown key; did you mean 'peak_lr'?", "allowed: "],
    ),
    "unknown key of a kind": (
        "runs.yaml",
        put("defaults", "optimizer", "beta", value=0.9),
        ["defaults.optimizer.beta: unknown key; did you mean 'betas'?", "allowed: kind, betas, "],
    ),
    "key of another kind": (
        "runs.yaml",
        put("defaults", "optimizer", "momentum", value=0.9),
        ["defaults.optimizer.momentum: unknown key (allowed: kind"],
    ),
    "unknown kind": (
        "runs.yaml",
        put("defaults", "optimizer", "kind", value="adam"),
        ["defaults.optimizer.kind is 'adam': must be one of 'adamw', 'adamw-independent'"],
    ),
    "a kind that is no text": (
        "runs.yaml",
        put("defaults", "optimizer", "kind", value=["adamw"]),
        ["defaults.optimizer.kind is ['adamw']: must be one of"],
    ),
    "unknown top key": (
        SMOKE,
        put("budgett", value=3),
        ["budgett: unknown key; did you mean 'budget'?"],
    ),
    "missing key": (SMOKE, put("budget", value="del"), ["budget: is required and missing"]),
    "wrong type": (SMOKE, put("budget", value="many"), ["budget is 'many'", "integer"]),
    "fraction of a step": (SMOKE, put("budget", value=1.5), ["budget is 1.5", "integer"]),
    "no mapping": (
        SMOKE,
        put("models", "main", value=[1]),
        ["models.main is [1]: must be a mapping"],
    ),
    "null": (SMOKE, put("threads", value=None), ["threads is None", "integer"]),
    "bad enum": (
        SMOKE,
        put("precision", value="float64"),
        ["precision is 'float64'", "'float32' or 'bfloat16'"],
    ),
    "bad enum of a run": (
        "runs.yaml",
        put(*TRUNK, "schedule", value="step"),
        ["runs.constant-3e-3.schedule is 'step'", "'constant'", "'cosine'"],
    ),
    "unknown source": (
        SMOKE,
        put("corpora", "main", "source", value="web"),
        ["corpora.main.source is 'web': must be one of 'embedded', 'datasets', 'mix'"],
    ),
    "unknown method": (
        "quantizers.yaml",
        put("gptq-4bit", "method", value="quip"),
        ["gptq-4bit.method is 'quip': must be one of 'gptq'", "'rtn'"],
    ),
    "no method": (
        "quantizers.yaml",
        put("int8", "method", value="del"),
        ["int8.method: is required and missing"],
    ),
    "a key of a quantizer of its method's name": (
        "quantizers.yaml",
        put("int8", "threshold", value="high"),
        ["int8.threshold is 'high': must be a valid number"],
    ),
    "an unknown key of its method's name": (
        "quantizers.yaml",
        put("gptq-4bit", "gptq", value=1),
        ["quantizers.yaml: gptq-4bit.gptq: unknown key (allowed: method, bits"],
    ),
    "neither of two types": (
        "quantizers.yaml",
        put("gptq-4bit", "group_size", value=[]),
        ["gptq-4bit.group_size is []: must be a valid integer or must be a mapping", "at_most)"],
    ),
    "wrong in one of two types": (
        "quantizers.yaml",
        put("gptq-4bit", "group_size", "at_most", value=0),
        ["gptq-4bit.group_size.at_most is 0: must be greater than 0"],
    ),
    "in a list": (
        "figures.yaml",
        put("fig04", "curves", "Decay", value=["rainbow-002", {}]),
        ["fig04.curves.Decay.1: must be text"],
    ),
    "another method in a group": (
        "backends.yaml",
        put("groups", value=[["gptq-4bit", "gptqmodel-4bit-static", "int8"]]),
        ["groups has int8 beside gptq-4bit", "put it into another group"],
    ),
    "other settings in a group": (
        "backends.yaml",
        put("groups", value=[["gptq-4bit", "gptq-3bit"]]),
        ["groups has gptq-3bit beside gptq-4bit"],
    ),
    "an average without a rate": (
        "figures.yaml",
        put("pythia", "curves", value={"LAWA": ["lawa-20"]}),
        ["pythia.curves has lawa-20, an average, which has no learning rate"],
    ),
    "an unknown quantizer of a table": (
        "tables.yaml",
        put("headline", "quantizers", value=["nope"]),
        ["headline.quantizers names no known quantizer: 'nope'"],
    ),
    "a table with a quantizer that takes not all of its models": (
        "tables.yaml",
        put("families", "quantizers", value=["awq-4bit"]),
        ["families.quantizers has awq-4bit, which cannot quantize olmo2-1b"],
    ),
    "too short a list": (
        "backends.yaml",
        put("groups", value=[["gptq-4bit"]]),
        ["groups.0 is ['gptq-4bit']: must have at least 2 items"],
    ),
    "unsupported bits": (
        "quantizers.yaml",
        put("gptq-4bit", "bits", value=1),
        ["gptq-4bit.bits is 1", "2, 3, 4"],
    ),
    "negative": (SMOKE, put("log_every", value=-1), ["log_every is -1", "greater than 0"]),
    "not a number": (
        "runs.yaml",
        put(*TRUNK, "peak_lr", value=float("nan")),
        ["runs.constant-3e-3.peak_lr is nan"],
    ),
    "infinite": (
        "runs.yaml",
        put(*TRUNK, "peak_lr", value=float("inf")),
        ["runs.constant-3e-3.peak_lr is inf", "finite"],
    ),
    "share above one": (
        "runs.yaml",
        put(*BRANCH, "cooldown", value="200/190"),
        ["runs.rainbow-036.cooldown is '200/190'", "less than or equal to 1"],
    ),
    "share of nothing": (
        "runs.yaml",
        put(*BRANCH, "at", value="1/0"),
        ["runs.rainbow-036.at is '1/0'", "a fraction such as 18/190"],
    ),
    "beta": (
        "runs.yaml",
        put("defaults", "optimizer", "betas", value=[0.9, 1.0]),
        ["defaults.optimizer.betas.1 is 1.0", "less than 1"],
    ),
    "vocabulary without all bytes": (
        SMOKE,
        put("corpora", "main", "vocabulary", value=256),
        ["corpora.main.vocabulary is 256", "greater than or equal to 257"],
    ),
    # Combinations.
    "unknown corpus": (
        SMOKE,
        put("models", "main", "corpus", value="wikipedia"),
        ["models.main.corpus names no known corpus: 'wikipedia' (known: main, code,"],
    ),
    "two amounts": (
        SMOKE,
        put("evaluation", "tokens", value=2048),
        ["evaluation", "takes blocks or tokens, and one of them"],
    ),
    "no amount": (
        SMOKE,
        put("curvature", "blocks", value="del"),
        ["curvature", "takes blocks or tokens, and one of them"],
    ),
    "more validation text than there is": (
        SMOKE,
        put("landscape", "blocks", value=65),
        ["landscape asks for 2,080 tokens in blocks of 32 (model 'main')", "validation has 2,048"],
    ),
    "less text than a block": (
        SMOKE,
        put("corpora", "main", "probe", value=31),
        ["curvature asks for 256 tokens in blocks of 32", "corpora.main.probe has 31"],
    ),
    "heads do not divide": (
        SMOKE,
        put("models", "main", "heads", value=3),
        ["models.main", "heads 3 does not divide width 32"],
    ),
    "micro batch does not divide": (
        SMOKE,
        put("models", "main", "micro_batch", value=3),
        ["models.main", "models.main.micro_batch 3 does not divide regime.batch 8"],
    ),
    "group size does not divide": (
        "quantizers.yaml",
        put("gptq-4bit", "group_size", value=48),
        ["gptq-4bit.group_size is 48", "does not divide the layer width 32", "{at_most: N}"],
    ),
    "cooldown after the trunk's end": (
        "runs.yaml",
        put(*TRUNK, "length", value="150/190"),
        ["runs.rainbow-172.at is 86/95", "after the end of its trunk constant-3e-3 at 15/19"],
    ),
    "no state at the branch": (
        "runs.yaml",
        put("runs", "wsd-3e-4", "at", value="80/190"),
        ["runs.wsd-3e-4.at is step 80", "constant-3e-4 keeps no state", "state_every"],
    ),
    "no states at all": (
        "runs.yaml",
        put("runs", "constant-3e-4", "state_every", value="del"),
        ["runs.wsd-3e-4.at is step 152", "constant-3e-4 keeps no state", "none"],
    ),
    "branch of a branch": (
        "runs.yaml",
        put(*BRANCH, "trunk", value="rainbow-002"),
        ["runs.rainbow-036.trunk is 'rainbow-002'", "constant-3e-4, constant-1e-3"],
    ),
    "branch of nothing": (
        "runs.yaml",
        put(*BRANCH, "trunk", value="constant"),
        ["runs.rainbow-036.trunk names no known trajectory: 'constant'", "constant-3e-4"],
    ),
    "branch of a cosine": (
        "runs.yaml",
        put(*BRANCH, "trunk", value="cosine-190-3e-3"),
        ["runs.rainbow-036.at is step 36, where its trunk cosine-190-3e-3 keeps no state"],
    ),
    "branch of a cooldown": (
        "runs.yaml",
        put(*BRANCH, "trunk", value="adamc-3e-3"),
        ["runs.rainbow-036.trunk is 'adamc-3e-3'", "without a cooldown: constant-3e-4"],
    ),
    "steady branch of a cosine": (
        "runs.yaml",
        put(*BRANCH, value={"trunk": "cosine-190-3e-3", "at": 0.1, "cooldown": 0.1, "steady": 0.1}),
        ["runs.rainbow-036.steady goes on at a constant rate, but", "has a cosine; leave it out"],
    ),
    "horizon of a constant rate": (
        "runs.yaml",
        put("runs", "constant-3e-3", "horizon", value=1),
        ["runs.constant-3e-3", "horizon goes with schedule cosine"],
    ),
    "horizon before the end": (
        "runs.yaml",
        put("runs", "cosine-{end}-{rate}", "horizon", value="1/190"),
        ["cosine-{end}-{rate}", "horizon 1/190 comes before the end at"],
    ),
    "warmup as long as the run": (
        "runs.yaml",
        put("runs", "cosine-{end}-{rate}", "warmup", value="{end}/190"),
        ["runs.cosine-{end}-{rate}.warmup is 20 steps", "lower warmup", "(in cosine-020-6e-4)"],
    ),
    "warmup into the cooldown": (
        "runs.yaml",
        put("runs", "adamc-3e-3", "warmup", value="160/190"),
        ["runs.adamc-3e-3", "do not fit into length"],
    ),
    "a line between models": (
        "runs.yaml",
        put("averages", "lawa-to-decay", "end", value="kumar-70m-wsd-13"),
        ["averages.lawa-to-decay goes from lawa-20 to kumar-70m-wsd-13", "other shapes"],
    ),
    "window longer than the checkpoints": (
        "runs.yaml",
        put("averages", "lawa-5", "window", value=500),
        ["averages.lawa-5 has no checkpoint of constant-3e-3 with 499 others", "change every"],
    ),
    "no window fits": (
        "runs.yaml",
        put("averages", "lawa-windows-{window}", "intervals", value=["2/190", "100/190"]),
        ["averages.lawa-windows-{window} has no average", "intervals, or checkpoint_every"],
    ),
    "intervals with every": (
        "runs.yaml",
        put("averages", "lawa-windows-{window}", "every", value="1/190"),
        ["averages.lawa-windows-{window}", "every: unknown key"],
    ),
    "window off the checkpoints": (
        "runs.yaml",
        put("runs", "constant-3e-3", "checkpoint_every", value="2/190"),
        ["averages.lawa-5 has no checkpoint of constant-3e-3 with 4 others", "each 1 steps apart"],
    ),
    "average of nothing": (
        "runs.yaml",
        put("averages", "lawa-5", "trajectory", value="constant-3e-9"),
        ["averages.lawa-5.trajectory", "'constant-3e-9'", "nearest: constant-3e-4"],
    ),
    "unknown trajectory": (
        "figures.yaml",
        put("fig04", "curves", "Stable", value=["constant"]),
        ["fig04.curves", "trajectory: 'constant'", "nearest: constant-"],
    ),
    "unknown quantizer": (
        "figures.yaml",
        put("fig05", "quantizers", value=["gptq-5bit"]),
        ["fig05.quantizers", "quantizer: 'gptq-5bit'", "nearest: gptq-"],
    ),
    "unknown draw": (
        "figures.yaml",
        put("fig04", "draws", value={"gptq-4bit": ["gptq-5bit"]}),
        ["fig04.draws.gptq-4bit", "quantizer: 'gptq-5bit'", "nearest: gptq-"],
    ),
    "draw of nothing": (
        "figures.yaml",
        put("fig04", "draws", value={"int8": ["gptq-4bit"]}),
        ["fig04", "draws has 'int8', which is none of its quantizers (gptq-4bit)"],
    ),
    "draw of other bits": (
        "figures.yaml",
        put("fig04", "draws", value={"gptq-4bit": ["gptq-3bit"]}),
        ["fig04.draws.gptq-4bit has gptq-3bit, which differs from gptq-4bit in more than its draw"],
    ),
    "draw of itself": (
        "figures.yaml",
        put("fig04", "draws", value={"gptq-4bit": ["gptq-4bit"]}),
        ["fig04.draws.gptq-4bit has gptq-4bit itself", "with another draw"],
    ),
    "draw beyond the text": (
        "scales/smoke.yaml",
        put("calibration", "draws", value=2),
        ["calibration asks for 2,048 tokens", "has 1,024"],
    ),
    "uneven batches of curvature": (
        "scales/smoke.yaml",
        put("curvature", "batch", value=3),
        ["curvature.batch 3 does not divide its 8 blocks", "change one of the two"],
    ),
    "unknown model": (
        "runs.yaml",
        put(*TRUNK, "model", value="big"),
        ["runs.constant-3e-3.model", "model: 'big'", "known: main"],
    ),
    "unknown model of a trunk behind its branch": (
        "runs.yaml",
        lambda runs: runs.update(
            runs={
                "early": {**runs["runs"]["rainbow-036"], "trunk": "late"},
                "late": {**runs["runs"]["constant-3e-3"], "model": "big"},
                **runs["runs"],
            }
        ),
        ["runs.late.model", "model: 'big'", "known: main"],
    ),
    "less than a block": (
        SMOKE,
        put("calibration", value={"tokens": 10, "batch": 4}),
        ["calibration has 0 blocks of 32 tokens (model 'main'), and must have 1; raise it"],
    ),
    "an evaluation without an error": (
        SMOKE,
        put("evaluation", value={"tokens": 40, "batch": 4}),
        ["evaluation has 1 blocks of 32 tokens (model 'main'), and must have 2; raise it"],
    ),
}


def outcome(folder, **choice):
    settings = {"scale": "smoke", "seed": 100, "figures": "all", **choice}
    return Plan(load(settings, folder), ROOT)


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(CONFIG, tmp_path / "config")
    return tmp_path / "config"


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_problem_that_names_file_key_value_and_what_is_allowed(folder, case):
    file, change, words = BAD[case]
    edit_yaml(folder / file, change)
    with pytest.raises(Problem) as caught:
        outcome(folder)
    message = str(caught.value)
    assert f"config/{file}" in message, message
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"
    assert "\n" not in message
    assert not [word for word in FOREIGN if word in message], message


def keys(content, place=()):
    """Every key and index of a file, as the path to it."""
    inner = content if isinstance(content, dict) else {}
    inner = dict(enumerate(content)) if isinstance(content, list) else inner
    for key, value in inner.items():
        yield (*place, key)
        yield from keys(value, (*place, key))


FILES = ["config.yaml", "runs.yaml", "quantizers.yaml", "figures.yaml", "backends.yaml", SMOKE]
VALIDATORS = {file: validator(file) for file in FILES}
KEYS = [(file, key) for file in FILES for key in keys(read_yaml(CONFIG / file))]
# What pydantic calls the alternatives of a type, and other words of Python.
FOREIGN = ["pydantic", "constrained", "literal[", "list[", "dict[", "AtMost", "instance of"]
FOREIGN += ["[key]", "Input", "ictionary", "valid string", "whole", "_kind_of", "Value error"]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return shutil.copytree(CONFIG, tmp_path_factory.mktemp("damaged") / "config")


@contextmanager
def changed(path, change):
    """A file with a change, put back afterwards."""
    kept = path.read_text()
    # Through JSON, so that what anchors share is changed in one place alone.
    content = json.loads(json.dumps(read_yaml(path)))
    change(content)
    try:
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        yield content
    finally:
        path.write_text(kept)


@given(st.sampled_from(KEYS), st.sampled_from([[[{}]], {"no such key": 1}, {3: None}]))
def test_a_broken_value_of_any_key_is_one_line_with_file_and_whole_key(damaged, where, broken):
    file, key = where
    with changed(damaged / file, put(*key, value=broken)) as content:
        choice = content if file == "config.yaml" else {}
        with pytest.raises(Problem) as caught:
            load({"scale": "smoke", "seed": 100, "figures": "all", **choice}, damaged)
    message = str(caught.value)
    dotted = ".".join(map(str, key))
    assert re.search(rf"config/{file}: {re.escape(dotted)}[:. ]", message), message
    assert "\n" not in message
    told = re.sub(r"\(its keys: .*?\)", "", message)
    assert not [word for word in FOREIGN if word in told], message
    # So does an editor that knows the schema, but for what has placeholders.
    if "{" not in dotted or "over" in key:
        assert not VALIDATORS[file].is_valid(json.loads(json.dumps(content)))


# Grids


def test_grids_make_the_runs_that_stand_here_one_by_one(folder):
    plain = read_yaml(ROOT / "tests/unit/plain_runs.yaml")
    made = {"cosine-{end}-{rate}", "decay-lambda-{decay}", "kumar-{size}-constant"}
    made |= {"kumar-{size}-cosine-{end}-to-{floor}", "kumar-{size}-wsd-{at}"}
    found = load({"scale": "smoke", "seed": 100, "figures": "all"}, folder).runs.runs

    def write_out(content):
        assert {name for name in content["runs"] if "{" in name} == made
        kept = {name: run for name, run in content["runs"].items() if name not in made}
        content["runs"] = kept | plain

    edit_yaml(folder / "runs.yaml", write_out)
    assert found == load({"scale": "smoke", "seed": 100, "figures": "all"}, folder).runs.runs
    assert set(plain) <= set(found) and len(plain) == 45


@given(
    sizes=st.lists(st.sampled_from(["s", "m", "l"]), min_size=1, max_size=3, unique=True),
    rates=st.lists(st.floats(1e-4, 1e-2), min_size=1, max_size=3, unique=True),
)
def test_a_grid_is_every_combination_of_its_lists(sizes, rates):
    grid = {"over": {"size": sizes, "rate": rates}, "model": "{size}", "peak_lr": "{rate}"}
    grid |= {"state_at": ["{rate}/190", 1], "optimizer": {"kind": "a-{size}-{rate}"}}
    plain = {"model": "main"}
    content, grids = expand(
        {"runs": {"before": plain, "x-{rate}-{size}": grid, "after": plain}, "other": 3},
        ("runs", "averages"),
        "runs.yaml",
    )
    expected = {
        f"x-{rate}-{size}": {
            "model": size,
            "peak_lr": rate,
            "state_at": [f"{rate}/190", 1],
            "optimizer": {"kind": f"a-{size}-{rate}"},
        }
        for size in sizes
        for rate in rates
    }
    assert content == {"runs": {"before": plain, **expected, "after": plain}, "other": 3}
    assert list(content["runs"]) == ["before", *expected, "after"]
    assert grids == {("runs", name): "x-{rate}-{size}" for name in expected}


KUMAR = ("runs", "kumar-{size}-wsd-{at}")
WSD = r"runs.kumar-{size}-wsd-{at}"
BAD_GRIDS = {
    "no mapping": (put(*KUMAR, "over", value=[1]), [f"{WSD}.over is [1]: must be a mapping"]),
    "empty": (put(*KUMAR, "over", value={}), [f"{WSD}.over is {{}}: must be a mapping"]),
    "no list": (put(*KUMAR, "over", "at", value=3), [f"{WSD}.over.at is 3: must be a list"]),
    "no values": (put(*KUMAR, "over", "at", value=[]), [f"{WSD}.over.at is []: must be a list"]),
    "no value": (
        put(*KUMAR, "over", "at", value=[1.5, [2]]),
        [f"{WSD}.over.at.1 is [2]: must be a number or text"],
    ),
    "true": (put(*KUMAR, "over", "at", value=[True]), [f"{WSD}.over.at.0 is True"]),
    "no placeholder": (
        put(*KUMAR, "over", "a b", value=[1]),
        [f"{WSD}.over.a b is no placeholder"],
    ),
    "not in the name": (
        put(*KUMAR, "over", "cooldown", value=[10]),
        [f"{WSD}.over.cooldown is not in the name; put {{cooldown}} there"],
    ),
    "unknown placeholder": (
        put(*KUMAR, "cooldown", value="{length}/190"),
        [f"{WSD}.cooldown has {{length}}, which is not in over (size, at)"],
    ),
    "unknown placeholder in a list": (
        put("runs", "kumar-{size}-constant", "state_at", 2, value="{x}/190"),
        ["runs.kumar-{size}-constant.state_at.2 has {x}, which is not in over (size)"],
    ),
    "no over": (
        put(*KUMAR, "over", value="del"),
        [f"{WSD}.over: is required and missing; the name has {{size}}"],
    ),
    "a value that the type refuses": (
        put(*KUMAR, "over", "at", value=[1.5, "late"]),
        [f"{WSD}.at is 'late/190': must be a number or a fraction", "(in kumar-70m-wsd-late)"],
    ),
    "a key of all": (
        put(*KUMAR, "floor", value=2),
        [f"{WSD}.floor is 2: must be less than or equal to 1 (in kumar-70m-wsd-1.5) (and 7 more"],
    ),
    "a trunk that there is not": (
        put(*KUMAR, "trunk", value="kumar-{at}"),
        [f"{WSD}.trunk names no known trajectory: 'kumar-1.5'", "(in kumar-70m-wsd-1.5)"],
    ),
    "a name twice": (
        put("runs", "kumar-70m-wsd-13", value={}),
        ["runs.kumar-70m-wsd-13 makes 'kumar-70m-wsd-13', which kumar-{size}-wsd-{at} makes"],
    ),
    "a value twice": (
        put(*KUMAR, "over", "at", value=[13, 40, 13]),
        [f"{WSD} makes 'kumar-70m-wsd-13', which {WSD[5:]} makes as well"],
    ),
}


@pytest.mark.parametrize("case", BAD_GRIDS)
def test_a_bad_grid_is_a_problem_that_names_its_whole_key(folder, case):
    change, words = BAD_GRIDS[case]
    edit_yaml(folder / "runs.yaml", change)
    with pytest.raises(Problem) as caught:
        outcome(folder)
    message = str(caught.value)
    assert "config/runs.yaml: " in message and "\n" not in message
    assert not [word for word in words if word not in message], message


def test_every_run_and_average_is_in_a_figure_or_behind_what_is():
    found = plan("paper").site.config
    shown = {name for figure in found.figures.values() for name in figure.trajectories}
    known = {**found.runs.runs, **found.runs.averages}
    behind = {source for each in known.values() for source in each.sources().values()}
    assert set(known) == (shown | behind) & set(known)


# Names


def rename(*path, name):
    """A change that gives a new name to the first entry below a path of keys but main, which
    miniatures are like."""

    def change(content):
        for key in path:
            content = content[key]
        content[name] = content.pop(next(key for key in content if key != "main"))

    return change


NAMED = [
    ("runs.yaml", ("runs",)),
    ("runs.yaml", ("averages",)),
    ("quantizers.yaml", ()),
    ("figures.yaml", ()),
    (SMOKE, ("models",)),
    (SMOKE, ("corpora",)),
]
named = st.sampled_from(NAMED)
PLAIN = re.compile(r"(?!seed-\d+\Z)(?=.{1,100}\Z)[A-Za-z0-9][\w-]*(\.[\w-]+)*", flags=re.A)
BAD_NAMES = ["../up", "a/b", "a..b", ".hidden", "ends.", "-option", "a|b", "a.*", "line\n", "", "ä"]
BAD_NAMES += ["x" * 101, "seed-100"]
SNAKEFILES = [*ROOT.glob("Snakefile"), *ROOT.glob("workflow/Snakefile")]
SNAKEFILES += ROOT.glob("workflow/rules/*.smk")
RULES = re.findall(r"^rule (\w+):", "".join(path.read_text() for path in SNAKEFILES), flags=re.M)


def refuse(damaged, name, where):
    file, place = where
    with changed(damaged / file, rename(*place, name=name)), pytest.raises(Problem) as caught:
        load({"scale": "smoke", "seed": 100, "figures": "all"}, damaged)
    message = str(caught.value)
    dotted = ".".join([*place, name if name.isprintable() else repr(name)])
    assert f"config/{file}" in message and dotted in message, message
    assert "name" in message.removeprefix(dotted) and "\n" not in message
    assert not [word for word in FOREIGN if word in message.replace(name or "\0", "")], message


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_could_do_harm_is_a_problem(damaged, name):
    refuse(damaged, name, ("runs.yaml", ("runs",)))


@given(st.text(max_size=120).filter(lambda name: not PLAIN.fullmatch(name)), named)
def test_a_name_of_another_pattern_is_a_problem(damaged, name, where):
    refuse(damaged, name, where)


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,9}(\.[A-Za-z0-9_-]{1,9}){0,3}", fullmatch=True),
    named,
)
def test_a_plain_name_is_taken(damaged, name, where):
    assume(name not in {"fp", "all", *RULES})
    file, place = where
    with changed(damaged / file, rename(*place, name=name)):
        found = load({"scale": "smoke", "seed": 100, "figures": "all"}, damaged)
    assert name in repr(found)


@pytest.mark.parametrize("name", sorted({*RULES, "figures", "all"}))
def test_names_of_rules_and_words_for_all_figures_are_no_names_of_figures(folder, name):
    assert {"train", "quantize", "figure", "collect", "environment"} <= set(RULES)
    edit_yaml(folder / "figures.yaml", rename(name=name))
    with pytest.raises(Problem, match=rf"config/figures\.yaml: {name}: '{name}' is reserved"):
        outcome(folder)


def test_full_precision_is_no_quantizer(folder):
    edit_yaml(folder / "quantizers.yaml", rename(name="fp"))
    with pytest.raises(Problem, match=r"config/quantizers\.yaml: fp: 'fp' is reserved"):
        outcome(folder)


def test_names_that_differ_in_capitals_alone_are_a_problem(folder):
    edit_yaml(folder / "quantizers.yaml", lambda found: found.update({"INT8": found["int8"]}))
    with pytest.raises(Problem, match="'int8' and 'INT8' differ in capitals alone"):
        outcome(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {b: 1, c: 2, b: 3}", ["a.b is there twice, again in line 1"]),
        ("a: 1\nb:\n  - {c: 1}\n  - c: 1\n    c: 1", ["b.1.c is there twice, again in line 5"]),
    ],
)
def test_a_key_that_is_there_twice_is_a_problem(folder, text, words):
    (folder / "runs.yaml").write_text(text)
    with pytest.raises(Problem) as caught:
        outcome(folder)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"scale": "big"}, ["scale is 'big'", "'smoke', 'laptop', 'gpu' or 'paper'"]),
        ({"figures": "fig04 fig4"}, ["figures names no known figure: 'fig4'", "nearest: fig24"]),
        ({"figures": 4}, ["figures", "is 4"]),
        ({"figures": []}, ["figures", "[]"]),
        ({"seed": -1}, ["seed is -1", "greater than or equal to 0"]),
        ({"more_seeds": "7 100"}, ["more_seeds has 100, which is seed already"]),
        ({"more_seeds": "7,8"}, ["more_seeds is '7,8': must be whole numbers with spaces between"]),
        ({"seed": 2**70}, ["seed is 1180591620717411303424", "less than 4294967296"]),
        ({"scales": "smoke"}, ["scales: unknown key; did you mean 'scale'?"]),
    ],
    ids=[
        "scale",
        "figure",
        "figures",
        "no figure",
        "seed",
        "seed twice",
        "seeds",
        "large seed",
        "key",
    ],
)
def test_a_bad_choice_is_a_problem(choice, words):
    with pytest.raises(Problem) as caught:
        outcome(CONFIG, **choice)
    message = str(caught.value)
    assert "config/config.yaml" in message
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "\tx", "- a\nb: c", "\x00"])
def test_damaged_yaml_is_a_problem(folder, text):
    (folder / "runs.yaml").write_text(text)
    with pytest.raises(Problem, match=r"config/runs\.yaml is no YAML") as caught:
        outcome(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", "null"])
def test_a_file_of_another_form_is_a_problem(folder, text):
    (folder / "runs.yaml").write_text(text)
    with pytest.raises(Problem, match=r"config/runs\.yaml"):
        outcome(folder)


def test_a_file_that_is_no_text_is_a_problem(folder):
    (folder / "runs.yaml").write_bytes(b"\xff\xfe\x80a: 1")
    with pytest.raises(Problem, match=r"config/runs\.yaml"):
        outcome(folder)


@pytest.mark.parametrize("file", ["runs.yaml", "quantizers.yaml", "figures.yaml", SMOKE])
def test_a_missing_file_is_a_problem(folder, file):
    (folder / file).unlink()
    with pytest.raises(
        Problem, match="is missing; run this in the checkout, or restore it with git checkout"
    ) as caught:
        outcome(folder)
    assert f"config/{file}" in str(caught.value)


def test_the_command_prints_the_resolved_configuration_or_one_line(folder):
    arguments = ["-m", "ptq_dynamics.cli", "config", "--scale", "smoke"]
    good = python(arguments, folder.parent)
    assert good.returncode == 0, good.stderr
    assert "budget: 190" in good.stdout and "peak_lr: 0.003" in good.stdout
    edit_yaml(folder / SMOKE, put("budget", value="many"))
    bad = python(arguments, folder.parent)
    assert bad.returncode == 1
    assert bad.stderr.splitlines() == [
        "error: config/scales/smoke.yaml: budget is 'many': must be a valid integer, "
        "unable to parse string as an integer"
    ]


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    head = ["sh", "-c", '"$@" | head -1', "sh"]
    done = python(["-m", "ptq_dynamics.cli", "config"], folder.parent, prefix=head)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
