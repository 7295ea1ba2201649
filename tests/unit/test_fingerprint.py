"""Fingerprints of code: what counts as an edit, and which definitions a stage depends on."""

import importlib.metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import fingerprint
from ptq_dynamics.engine.fingerprint import notes, sources
from ptq_dynamics.engine.fingerprint.definitions import parsed
from ptq_dynamics.engine.fingerprint.reach import Node, Program
from ptq_dynamics.engine.fingerprint.references import Import

BASE = {
    "ptq_dynamics": "",
    "ptq_dynamics.base.problem": "class Problem(Exception):\n    pass\n",
    "ptq_dynamics.engine": "",
    "ptq_dynamics.engine.context": "class Context:\n    name = 1\n",
    "ptq_dynamics.helpers": '''"""Helpers."""
RATE = 0.1
UNUSED = 1


def scaled(x, by=RATE):
    return _twice(x) * by


def _twice(x):
    return 2 * x


def unused():
    return UNUSED
''',
    "ptq_dynamics.other": '''from dataclasses import dataclass


def _twice(x):
    return x + x


@dataclass(frozen=True)
class Settings:
    """Settings."""

    size: int
    rate: float = 1.0

    def twice(self) -> int:
        return _twice(self.size)

    def again(self):
        return self.twice()
''',
    "ptq_dynamics.stage": '''"""A stage."""
import math

from loguru import logger

from ptq_dynamics import helpers
from ptq_dynamics.engine.context import Context
from ptq_dynamics.other import Settings
from ptq_dynamics.base.problem import Problem

LIMIT = 3


def run(context: Context[Settings]) -> dict:
    """Run it."""
    size: int = context.settings.twice()
    if size > LIMIT:
        raise Problem(f"{size} is too large; lower size")
    context.progress.say(f"size {size}")
    logger.info("begun")
    return {"value": area(size), "text": "text"}


def area(radius, scale=1):
    """The area of a circle."""
    return scale * math.pi * helpers.scaled(radius) ** 2
''',
}
STAGE, HELPERS, OTHER = (f"ptq_dynamics.{name}" for name in ("stage", "helpers", "other"))


def of(files, modules=()):
    return fingerprint.of(Program(files, sources.ENGINE), "stage", modules)


def edited(module, *changes, base=BASE):
    text = base[module]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return {**base, module: text}


def moved(definition, source, target, *changes):
    """The sources with a definition of one module in another."""
    files = edited(source, (definition, ""), *changes)
    return {**files, target: files[target] + "\n\n" + definition}


TWICE = "def _twice(x):\n    return 2 * x\n"
AREA = BASE[STAGE][BASE[STAGE].index("def area") :]
RUN = BASE[STAGE][BASE[STAGE].index("def run") : BASE[STAGE].index("def area")]
AGAIN = "    def again(self):\n        return self.twice()\n"
TWICE_OF = "    def twice(self) -> int:\n        return _twice(self.size)\n"

SAME = {
    "comment": edited(STAGE, ("LIMIT = 3", "# A comment.\nLIMIT = 3  # another")),
    "module docstring": edited(STAGE, ('"""A stage."""\n', "")),
    "docstring": edited(STAGE, ("The area of a circle.", "Something else.\n\n    More.")),
    "no docstring": edited(STAGE, ('    """The area of a circle."""\n', "")),
    "class docstring": edited(OTHER, ('    """Settings."""\n', "")),
    "blank lines": edited(STAGE, ("\n\n\n", "\n\n\n\n\n")),
    "line breaks": edited(STAGE, ("(radius, scale=1)", "(\n    radius,\n    scale=1,\n)")),
    "parentheses": edited(STAGE, ("scale * math.pi *", "(scale * math.pi) *")),
    "quotes": edited(STAGE, ('"text": "text"', "'text': 'text'")),
    "line ends": edited(STAGE, ("\n", "\r\n")),
    "hint of a local": edited(STAGE, ("size: int =", "size: float =")),
    "no hint of a local": edited(STAGE, ("size: int =", "size =")),
    "hint of a parameter": edited(STAGE, ("(radius, scale", "(radius: float, scale")),
    "hint of a result": edited(OTHER, ("-> int", "-> float")),
    "error text": edited(STAGE, ("is too large; lower size", "is large")),
    "progress text": edited(STAGE, ('"size {size}"', '"it is {size} now"')),
    "progress of an object": edited(
        STAGE, ("    logger", "    self._progress.say(str(size))\n    logger")
    ),
    "progress told": edited(
        STAGE, ("    logger", "    context.progress.maybe(str(size))\n    logger")
    ),
    "log text": edited(STAGE, ('"begun"', '"started"')),
    "no log": edited(
        STAGE, ('    logger.info("begun")\n', ""), ("from loguru import logger\n", "")
    ),
    "unused class": edited(
        HELPERS,
        (
            "def unused",
            "class More:\n    @property\n    def x(self):\n        return 1\n\n    @x.setter\n"
            "    def x(self, y=1):\n        pass\n\n    @x.deleter\n    def x(self):\n"
            "        pass\n\n\ndef unused",
        ),
    ),
    "unused function": edited(HELPERS, ("def unused", "def more():\n    pass\n\n\ndef unused")),
    "unused function's body": edited(HELPERS, ("return UNUSED", "return 2")),
    "unused constant": edited(HELPERS, ("UNUSED = 1", "UNUSED = 2")),
    "functions swapped": {**BASE, STAGE: BASE[STAGE].replace(AREA, "").replace(RUN, AREA + RUN)},
    "methods swapped": {
        **BASE,
        OTHER: BASE[OTHER].replace(AGAIN, "").replace(TWICE_OF, AGAIN + TWICE_OF),
    },
    "helper added to another module": edited(
        OTHER, ("def _twice", "def new(x):\n    pass\n\n\ndef _twice")
    ),
    "definition moved": moved(
        TWICE,
        HELPERS,
        "ptq_dynamics.base.problem",
        ("RATE =", "from ptq_dynamics.base.problem import _twice\nRATE ="),
    ),
    "import by another name": edited(
        STAGE, ("import helpers", "import helpers as h"), ("helpers.scaled", "h.scaled")
    ),
    "import of the function": edited(
        STAGE,
        ("ptq_dynamics import helpers", "ptq_dynamics.helpers import scaled as s"),
        ("helpers.scaled", "s"),
    ),
    "import in the function": edited(
        STAGE,
        ("from ptq_dynamics import helpers\n", ""),
        ("    return scale", "    import ptq_dynamics.helpers as y\n\n    return scale"),
        ("helpers.scaled", "y.scaled"),
    ),
    "relative import": edited(STAGE, ("from ptq_dynamics import helpers", "from . import helpers")),
    "relative import of a name": edited(STAGE, ("from ptq_dynamics.other", "from .other")),
    "library by another name": edited(
        STAGE, ("import math", "import math as m"), ("math.pi", "m.pi")
    ),
    "unused import": edited(STAGE, ("import math\n", "import json\nimport math\n")),
    "engine": edited("ptq_dynamics.engine.context", ("name = 1", "name = 2")),
    "new module": {**BASE, "ptq_dynamics.new": "print(1)\n"},
}

DIFFERENT = {
    "constant": edited(HELPERS, ("0.1", "0.2")),
    "constant type": edited(STAGE, ("LIMIT = 3", "LIMIT = 3.0")),
    "default": edited(STAGE, ("scale=1", "scale=2")),
    "operator": edited(STAGE, ("scale * math", "scale + math")),
    "argument name": edited(STAGE, ("(radius, scale", "(r, scale"), ("(radius)", "(r)")),
    "keyword-only": edited(STAGE, ("(radius, scale", "(radius, *, scale")),
    "string": edited(STAGE, ('"text"}', '"texts"}')),
    "decorator": edited(STAGE, ("def area", "@staticmethod\ndef area")),
    "class decorator": edited(OTHER, ("frozen=True", "frozen=False")),
    "base class": edited(OTHER, ("class Settings:", "class Settings(dict):")),
    "field": edited(OTHER, ("size: int", "size: float")),
    "field's default": edited(OTHER, ("= 1.0", "= 2.0")),
    "fields swapped": edited(OTHER, ("    size: int\n", ""), ("= 1.0\n", "= 1.0\n    size: int\n")),
    "method": edited(OTHER, ("_twice(self.size)", "_twice(self.size) + 1")),
    "helper": edited(HELPERS, ("2 * x", "3 * x")),
    "condition": edited(STAGE, ("size > LIMIT", "size >= LIMIT")),
    "the other helper of that name": edited(
        STAGE,
        ("import math\n", "import math\n\nfrom ptq_dynamics.other import _twice\n"),
        ("area(size)", "_twice(size)"),
    ),
    "effect": edited(HELPERS, ("RATE =", "import torch\n\ntorch.manual_seed(0)\nRATE =")),
    "effect of a package": {**BASE, "ptq_dynamics": "print(2)\n"},
    "import for its effect": edited(HELPERS, ("RATE =", "import torch\n\nRATE =")),
    "effect of what is imported": edited(OTHER, ("def _twice", "print(1)\n\n\ndef _twice")),
    **{
        f"effect in {place}": edited(HELPERS, ("RATE =", f"import torch\n\n\n{text}\n\nRATE ="))
        for place, text in {
            "a default": "def more(x=torch.manual_seed(0)):\n    pass\n",
            "a default of a keyword": "def more(*, x=torch.manual_seed(0)):\n    pass\n",
            "a base class": "class More(torch.manual_seed(0)):\n    pass\n",
            "a class": "class More:\n    x = torch.manual_seed(0)\n",
            "a field": "class More:\n    x: int = torch.manual_seed(0)\n",
            "a target": "class More:\n    torch.x = 0\n",
            "a method's decorator": "class More:\n    @torch.jit\n    def x(self):\n        pass\n",
            "a method's default": "class More:\n    def x(self, y=torch.seed()):\n        pass\n",
            "an inner class": "class More:\n    class Inner:\n        x = torch.seed()\n",
            "what is mapped": "X = list(map(torch.manual_seed, [0]))\n",
            "a decorator's argument": "@property(torch.seed())\ndef more():\n    pass\n",
            "a default of a lambda": "X = lambda x=torch.seed(): x\n",
            "a hint": "def more(x: torch.seed()):\n    pass\n",
            "a lambda that sorts": "X = sorted([0], key=lambda x: torch.seed())\n",
            "what sorts": "X = sorted([0], key=torch.manual_seed)\n",
        }.items()
    },
    "registered": edited(HELPERS, ("def unused", "@_twice\ndef unused")),
    "context": edited(STAGE, ("Context[Settings]", "Context[int]")),
    "shadowed": edited(STAGE, ('    """Run it."""', "    LIMIT = 4")),
    "global": edited(STAGE, ('    """Run it."""', "    global LIMIT\n    LIMIT = 4")),
}


@pytest.mark.parametrize("edit", SAME)
def test_what_changes_no_meaning_changes_nothing(edit):
    assert SAME[edit] != BASE
    assert of(SAME[edit]) == of(BASE)


@pytest.mark.parametrize("edit", DIFFERENT)
def test_every_other_edit_changes_the_fingerprint(edit):
    assert of(DIFFERENT[edit]) != of(BASE)


def test_different_edits_have_different_fingerprints():
    found = [of(files).code for files in DIFFERENT.values()]
    assert len({*found}) == len(found)


def test_two_helpers_of_one_name_are_told_apart():
    """Each caller has the helper of its own module, and that counts."""
    helper = "def _read():\n    return {}\n\n\ndef {}():\n    return _read()\n"
    head = "from ptq_dynamics.a import f\nfrom ptq_dynamics.b import g\n"
    run = f"{head}\n\ndef run():\n    return f, g\n"
    files = {"ptq_dynamics": "", "ptq_dynamics.stage": run}
    one, other = (
        {
            **files,
            "ptq_dynamics.a": helper.format("{}", "f").format(first).replace("{}", ""),
            "ptq_dynamics.b": helper.format("{}", "g").format(second).replace("{}", ""),
        }
        for first, second in ((1, 2), (2, 1))
    )
    assert of(one).code != of(other).code
    names = of(one).definitions.keys()
    assert names == of(other).definitions.keys() == {"", "run", "f", "g", "_read"}


def test_circles_of_functions_are_told_apart_and_move():
    text = "def run():\n    return a()\n\n\ndef a():\n    return b(1)\n\n\n"
    text += "def b(x):\n    return a() or {}\n"
    one, other = ({"ptq_dynamics": "", STAGE: text.replace("{}", str(n))} for n in (1, 2))
    assert of(one) != of(other)
    part = one[STAGE].index("def b")
    moving = {
        **one,
        STAGE: "from ptq_dynamics.b import b\n" + one[STAGE][:part],
        "ptq_dynamics.b": "import ptq_dynamics.stage as s\n\n"
        + one[STAGE][part:].replace("a()", "s.a()"),
    }
    assert of(moving) == of(one)


WHOLE = {
    "a value": "return helpers",
    "getattr": "return getattr(helpers, context.name)",
    "import_module": 'return importlib.import_module("ptq_dynamics.helpers")',
    "a name made when it runs": 'return importlib.import_module(f"ptq_dynamics.{context.name}")',
    "another name for it": 'return load("ptq_dynamics.helpers")',
    "a name by its keyword": 'return load(name="ptq_dynamics.helpers")',
    "what is mapped": "return list(map(load, [context.name]))",
    "any name": "return importlib.import_module(context.name)",
    "star": "return scaled",
    "globals": "return globals()[context.name]",
    "unknown": "return helpers.whatever",
}


@pytest.mark.parametrize("kind", WHOLE)
def test_where_no_name_shows_what_is_meant_the_whole_module_counts(kind):
    head = "import importlib\nfrom importlib import import_module as load\n"
    head += "from ptq_dynamics import helpers\n"
    head = "from ptq_dynamics.helpers import *\n" if kind == "star" else head
    files = {**BASE, STAGE: f"{head}\n\ndef run(context):\n    {WHOLE[kind]}\n"}
    changed = edited(HELPERS, ("return UNUSED", "return 2"), base=files)
    assert of(changed) != of(files)


def test_a_module_that_settings_select_stands_for_a_name_made_when_it_runs():
    text = 'def run(context):\n    return import_module(f"ptq_dynamics.kinds.{context.name}")\n'
    kinds = {
        f"ptq_dynamics.kinds{name}": f"def make():\n    return '{name}'\n"
        for name in ("", ".a", ".b")
    }
    files = {"ptq_dynamics": "", STAGE: "from importlib import import_module\n" + text, **kinds}
    changed = {**files, "ptq_dynamics.kinds.b": "def make():\n    return 3\n"}
    assert of(changed, ["kinds.a"]) == of(files, ["kinds.a"])
    assert of(changed, ["kinds.b"]) != of(files, ["kinds.b"])
    assert of(changed) != of(files)


def test_a_script_beside_another_is_followed():
    scripts = {
        "ptq_dynamics.foreign.tool": "from protocol import main\n\nif __name__ == '__main__':\n    "
        "main()\n",
        "ptq_dynamics.foreign.protocol": "def main():\n    return 1\n\n\n"
        "def other():\n    return 2\n",
    }
    files = {**BASE, **scripts}
    for old, changes in (("return 1", True), ("return 2", False)):
        changed = edited("ptq_dynamics.foreign.protocol", (old, "return 3"), base=files)
        assert (of(changed, ["foreign.tool"]) != of(files, ["foreign.tool"])) == changes


@given(st.integers() | st.floats() | st.text() | st.binary() | st.booleans() | st.none())
def test_constants_are_told_apart(value):
    other = not value if isinstance(value, bool) else (value, 1)
    # The infinite and NaN are no literals.
    files = [
        {"ptq_dynamics": "", STAGE: f"inf = nan = 0\ndef run():\n    return {v!r}\n"}
        for v in (value, other)
    ]
    assert of(files[0]) != of(files[1])


def test_libraries_are_those_that_reached_definitions_use():
    text = (
        "import numpy as np\nimport pandas as pd\nimport yaml\nimport no_such_library\nimport os\n"
        "from torch import Tensor\nfrom ptq_dynamics import helpers\n\n\n"
        "def run(x: Tensor):\n    import scipy.stats\n    return np.mean, yaml, no_such_library, "
        "os, scipy.stats, helpers\n\n\ndef unused():\n    return pd\n"
    )
    found = of({**BASE, STAGE: text}).environment
    assert set(found) == {"PyYAML", "no_such_library", "numpy", "scipy", "torch"}
    assert found["no_such_library"] == "absent"
    assert found["numpy"] == importlib.metadata.version("numpy")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("x", r"no module ptq_dynamics\.x; write workflow/ptq_dynamics/x\.py"),
        ("helpers", r"ptq_dynamics\.helpers has no function run"),
    ],
)
def test_a_stage_that_is_not_there_is_a_problem(stage, words):
    with pytest.raises(Problem, match=words):
        fingerprint.of(Program(BASE, sources.ENGINE), stage)


# The modules of this project

FILES = sources.on_disk()
PROGRAM = Program(FILES, sources.ENGINE)
STAGES = sorted(
    name.removeprefix("ptq_dynamics.")
    for name, text in FILES.items()
    if "\ndef run(context: Context[" in text
)
FIGURES = [name for name in STAGES if name.startswith("figures.")]
# The environment that a foreign method runs in is a stage too, and its reader.
METHODS = [n for n in STAGES if n.startswith("quantize.") and not n.endswith(".environment")]


def reached(stage):
    return PROGRAM.reach([Node(f"ptq_dynamics.{stage}", "run")])


def environment(stage):
    return set(fingerprint.of(PROGRAM, stage).environment)


def test_all_stages_are_found():
    assert {"train.train", "measure.loss", "train.average"} <= set(STAGES)
    assert len(FIGURES) >= 3 and len(METHODS) >= 2


@pytest.mark.parametrize("stage", [*FIGURES, *METHODS])
def test_a_figure_or_method_depends_on_no_other(stage):
    others = {f"ptq_dynamics.{name}" for name in {*FIGURES, *METHODS} - {stage}}
    assert not others & {node.module for node in reached(stage).nodes}


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_depends_on_what_decides_or_serves(stage):
    rooms = {name.split(".")[1] for name in reached(stage).modules if "." in name}
    assert not rooms & {"config", "plan", "jobs", "cli", "bench"}


def test_libraries_of_the_projects_stages():
    libraries = {stage: environment(stage) for stage in STAGES}
    assert all("matplotlib" in libraries[figure] for figure in FIGURES)
    # The page has the colours of figures.
    for stage in set(STAGES) - {*FIGURES, "report.page"}:
        drawing = libraries[stage] & {"matplotlib", "seaborn"}
        assert not drawing, f"a newer matplotlib would rebuild {stage}"
    for figure in FIGURES:
        assert "torch" not in libraries[figure], f"a newer torch would redraw {figure}"
    assert "torch" in libraries["train.train"]
    # What rounds for GPTQ is behind llm-compressor.
    assert {"llmcompressor", "compressed-tensors"} <= libraries["quantize.gptq"]
    asked = {"lm_eval", "datasets", "jinja2", "tokenizers"}
    assert asked <= libraries["measure.tasks.fetch"] & libraries["measure.accuracy"]
    assert "llmcompressor" not in libraries["quantize.rtn"]


def test_every_library_is_installed_under_the_name_in_its_fingerprint():
    # Quantizers that run in environments of their own name libraries that this one lacks.
    for stage in ("train.train", "measure.loss", "quantize.gptq", *FIGURES):
        assert "absent" not in fingerprint.of(PROGRAM, stage).environment.values(), stage


@pytest.mark.parametrize("way", ["__init_subclass__", "__set_name__", "metaclass="])
def test_no_class_registers_itself_where_names_do_not_lead(way):
    found = [name for name, text in sources.on_disk().items() if way in text]
    assert not found, f"{way} is called without being named, so it would be in no fingerprint"


def test_no_name_is_bound_anew_where_the_order_of_definitions_would_count():
    """It counts in no fingerprint."""
    found = [
        (name, bound)
        for name, text in FILES.items()
        for bound, statements in parsed(name, text, False).names.items()
        if not isinstance(statements, Import) and len(statements) > 1
    ]
    assert not found


@pytest.mark.parametrize("way", ["from ptq_dynamics.helpers import inner", "from . import inner"])
def test_a_package_that_imports_a_module_of_its_own_leads_to_it(way):
    inner = f"{HELPERS}.inner"
    files = edited(HELPERS, ("RATE =", f"{way}\n\nRATE ="), ("2 * x", "inner.twice(x)"))
    files |= edited(STAGE, ("helpers.scaled(radius)", "helpers.inner.twice(radius)"), base=files)
    files |= {inner: "def twice(x):\n    return 2 * x\n"}
    assert of(files) != of(edited(inner, ("2 * x", "3 * x"), base=files))
    assert of(files) == of({**files, inner: files[inner] + "\n\ndef other():\n    return 1\n"})


# What is kept for later builds


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A folder without notes; what a new process would have read of them."""
    monkeypatch.chdir(tmp_path)
    yield fingerprint._first_notes.cache_clear
    fingerprint._first_notes.cache_clear()


def test_notes_hold_the_fingerprint_of_the_same_sources(fresh, monkeypatch):
    fresh()
    stages = [("measure.loss", ()), ("train.train", ("train.optimizers.adamw",))]
    found = [fingerprint.planned(*stage, ()) for stage in stages]
    assert found == [fingerprint.of(Program(sources.on_disk(), sources.ENGINE), *s) for s in stages]
    assert not notes.NOTES.exists()
    fingerprint.note_planned()
    fresh()
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "_code", None)
        assert [fingerprint.planned(*stage, ()) for stage in stages] == found
    before = notes.NOTES.stat().st_mtime_ns
    fingerprint.note_planned()
    assert notes.NOTES.stat().st_mtime_ns == before, "written though nothing is new"


@pytest.mark.parametrize(
    "edit",
    [
        lambda sources: sources | {"ptq_dynamics.stage": "def run(context):\n    return {1: 1}\n"},
        lambda sources: sources | {"ptq_dynamics.new": ""},
        lambda sources: {name: text for name, text in sources.items() if "other" not in name},
    ],
)
def test_notes_of_other_sources_count_for_nothing(fresh, edit):
    code = notes.Code({"": "digest"}, ["torch"])
    kept = notes.Notes(BASE)
    kept.add("stage", (), code)
    kept.write()
    assert notes.Notes(BASE).get("stage", ()) == notes.Code({"": "digest"}, ["torch"])
    assert notes.Notes(BASE).get("stage", ("other",)) is None
    assert notes.Notes(edit(BASE)).get("stage", ()) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"sources": 1}', '{"code": {}}'])
def test_damaged_notes_count_for_nothing(fresh, text):
    notes.NOTES.parent.mkdir()
    notes.NOTES.write_text(text)
    assert notes.Notes(BASE).get("stage", ()) is None
