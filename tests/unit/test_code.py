"""Digests of code: what changes no result changes none of them, and all else that a stage reaches
does. Small programs say what counts; the project's own are edited at random."""

import ast
import os
import subprocess
import sys
from glob import glob
from pathlib import Path

import pytest
from ptq_dynamics.engine import code
from ptq_dynamics.engine.checkout import PACKAGE, SOURCES
from ptq_dynamics.engine.code import Node, Program
from ptq_dynamics.engine.machine import versions
from support import one_line

ROOT = Node("p.stage", "run")
STAGE = '''
"""A stage."""
import json
import numpy as np
from p.base import LIMIT, Shape, helper, other
from p import tools as kit
class Settings(Shape):
    """Fields."""
    bits: int = 4
def run(context: "Context[Settings]") -> dict:
    """What it does."""
    import torch.nn as nn
    limit = LIMIT
    for number in range(LIMIT):
        context.progress.say(f"at {number}")
    if not context:
        raise Problem(f"no context {LIMIT}")
    if limit > 9:
        raise ValueError(f"more than {LIMIT}")
    assert context, "still none"
    return {"a": helper(np.zeros(3)), "b": kit.deep.used(nn), "d": kit.again}
def beside():
    return other
'''
BASE = '''
"""Shared."""
LIMIT = UPPER = 3
UNIT = 1
class Shape:
    width: int
    def area(self):
        return self.width * UNIT
def helper(x, *, by=2):
    def inner():
        return json_of(x)
    return inner() * by
def json_of(x):
    return x
def other():
    import pandas
'''
PROGRAM = {
    "stage": STAGE,
    "base": BASE,
    "tools/__init__": "from p.tools import deep\nfrom p.tools.deep import again\n",
    "tools/deep": "def used(x):\n    return x\ndef unused(x):\n    return x\nagain = [used]\n",
    "engine/run": "def serve():\n    pass\n",
}


def write(folder: Path, files: dict[str, str]) -> Program:
    for name, text in files.items():
        path = folder / "p" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Program(folder, "p")


def edited(folder: Path, module: str, old: str, new: str) -> code.Code:
    text = PROGRAM[module]
    assert old in text
    return write(folder, {**PROGRAM, module: text.replace(old, new, 1)}).code([ROOT])


NOTHING = [
    ("stage", "What it does", "What else it does"),
    ("stage", "Fields.", "Fields, more of them."),
    ("stage", "    import torch", "    # why\n\n    import torch"),
    ("stage", " -> dict:", ":"),
    ("stage", "at {number}", "now at {number} of {LIMIT}"),
    ("stage", "no context {LIMIT}", "there is none"),
    ("stage", '"still none"', '"none"'),
    ("stage", "def beside():\n    return other\n", "def beside():\n    return 1\n"),
    ("base", "def other():\n    import pandas\n", ""),
    ("base", "def json_of(x):", "def json_of(x: int) -> int:"),
    ("stage", "limit = LIMIT", "limit: int = LIMIT"),
    ("stage", "from p.base import", "from .base import"),
    ("stage", "from p import tools", "from . import tools"),
    ("stage", "import json", "import json, logging\nlogging.getLogger('a').setLevel(1)"),
    ("stage", "import json", "import json\nif TYPE_CHECKING:\n    from p.base import json_of"),
    ("base", "UPPER = 3\n", "UPPER = 3\nLOWER = 2\ndef more():\n    return LOWER\n"),
    ("tools/deep", "def unused(x):\n    return x", "def unused(x):\n    return 2 * x"),
    ("engine/run", "pass", "return 1"),
]
SOMETHING = [
    ("stage", '"a": helper', '"c": helper', "stage"),
    ("stage", "raise Problem", "raise KeyError", "stage"),
    ("stage", "more than {LIMIT}", "more than {LIMIT:.3g}", "stage"),
    ("stage", "assert context,", "assert not context,", "stage"),
    ("base", "LIMIT = UPPER = 3", "LIMIT = UPPER = 4", "base"),
    ("base", "by=2", "by=3", "base"),
    ("base", "return json_of(x)", "return -json_of(x)", "base"),
    ("base", "def json_of", "@cache\ndef json_of", "base"),
    ("tools/deep", "    return x\n", "    return -x\n", "tools.deep"),
    ("tools/deep", "again = [used]", "again = [used, 1]", "tools.deep"),
]


@pytest.mark.parametrize("edit", NOTHING, ids=lambda edit: f"{edit[0]} {edit[1][:20]!r}")
def test_what_changes_no_result_changes_no_digest(tmp_path, edit):
    before = write(tmp_path / "before", PROGRAM).code([ROOT])
    assert edited(tmp_path / "after", *edit) == before


@pytest.mark.parametrize("edit", SOMETHING, ids=lambda edit: f"{edit[0]} {edit[1][:20]!r}")
def test_what_may_change_a_result_changes_the_digest_of_its_module(tmp_path, edit):
    *edit, module = edit
    before = write(tmp_path / "before", PROGRAM).code([ROOT]).modules
    after = edited(tmp_path / "after", *edit).modules
    assert {name for name in before if before[name] != after[name]} == {module}


FOLLOWED = {
    "under a condition": ("if __debug__:\n    from p.far import value", "value()"),
    "in a class": ("class K:\n    from p.far import value", "K.value()"),
    "relative": ("from .far import value", "value()"),
    "relative in a function": ("def f():\n    from .far import value\n    value()", "f()"),
    "of all names": ("from p.far import *", "value()"),
    "assigned again": ("from p.far import value\nvalue = [value]", "value"),
    "named in a condition": ("from p.far import value as a\nb = [c for c in d if (e := a)]", "e()"),
    "of all names that another imports": ("from p.by import *", "value()"),
    "of a module that is passed on": ("from p import by", "list(by)"),
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_imports_of_every_form_are_followed(tmp_path, way):
    head, use = FOLLOWED[way]
    stage = f"{head}\ndef run(context):\n    return {use}\n"
    found = []
    for number in (1, 2):
        files = {"stage": stage, "by": "from p.far import value\n"}
        files |= {"far": f"def value():\n    return {number}\n"}
        found.append(write(tmp_path / str(number), files).code([ROOT]))
    assert found[0].modules.keys() - {"by"} == {"stage", "far"} and not found[0].libraries
    assert found[0].modules["far"] != found[1].modules["far"]


EFFECTS = ["np.errstate.kind = 1", "_ = np.seterr()", "LIMITS[0] += 1", "del np.nan"]
EFFECTS += ["for np.nan in [1]:\n    pass", "if np:\n    np.nan = 1", "class K:\n    np.nan = 1"]
EFFECTS += ["@np.add\ndef f(): 1", "class K:\n    @np.add\n    def f(): 1"]
EFFECTS += ["def f(*, a=np.seterr()): 1", "class K(np.base()): 1", "A = (lambda: np.seterr())()"]
PLACES = ["\nimport p.side.way\n", "\nfrom .side import way\n", "inner"]


@pytest.mark.parametrize(
    ("effect", "place"),
    [*((effect, PLACES[0]) for effect in EFFECTS), *((EFFECTS[0], place) for place in PLACES[1:])],
)
def test_effects_of_an_import_count_for_all_who_import_it(tmp_path, effect, place):
    """Also if they use no name of it, or import it in a function."""
    base = BASE.replace("():\n", "():\n        import p.side.way\n", 1)
    files = {**PROGRAM, "base": base if place == "inner" else place + BASE}
    files |= {"side/__init__": "", "side/way": "from p.side import off\n"}
    quiet = write(tmp_path / "quiet", {**files, "side/off": "VALUE = 1\n"}).code([ROOT])
    assert "side.off" not in quiet.modules
    acts = write(tmp_path / "acts", {**files, "side/off": f"VALUE = 1\n{effect}\n"}).code([ROOT])
    assert "side.off" in acts.modules and acts.modules["base"] == quiet.modules["base"]


@pytest.mark.parametrize("lines", ["LIMIT = 2|LIMIT = 3", "UPPER = 2|LIMIT = UPPER|UPPER = 3"])
def test_the_order_of_assignments_to_one_name_counts(tmp_path, lines):
    first, *others = lines.split("|")
    found = []
    for number, each in enumerate(([first, *others], [*others, first])):
        base = BASE.replace("LIMIT = UPPER = 3", "\n".join(each))
        found.append(write(tmp_path / str(number), {**PROGRAM, "base": base}).code([ROOT]))
    assert found[0].modules["base"] != found[1].modules["base"]


@pytest.mark.parametrize("text", ["def run(:\n", "x = '\0'\n", "from .... import a\n"])
def test_a_module_that_is_no_python_is_one_line(tmp_path, text):
    with one_line("stage.py is no Python", "correct it"):
        write(tmp_path, {"stage": text}).code([ROOT])


def test_classes_of_settings_count_as_a_whole_and_so_does_what_they_name(tmp_path):
    program = write(tmp_path, PROGRAM)
    settings = Node("p.stage", "Settings")
    plain, more = program.code([ROOT]), program.code([ROOT, settings])
    assert plain.modules.keys() == more.modules.keys() == {"stage", "base", "tools.deep"}
    for old, new in (("return self.width", "return 2 * self.width"), ("UNIT = 1", "UNIT = 2")):
        other = write(tmp_path / new, {**PROGRAM, "base": BASE.replace(old, new)})
        assert other.code([ROOT]) == plain and other.code([ROOT, settings]) != more
    field = STAGE.replace("bits: int = 4", "bits: float = 4")
    assert write(tmp_path / "field", {**PROGRAM, "stage": field}).code([settings]).modules != (
        program.code([settings]).modules
    )
    # A field that has the name of an imported module reaches nothing of that.
    named = STAGE.replace("bits: int = 4", "kit: int = 4")
    found = write(tmp_path / "named", {**PROGRAM, "stage": named}).code([settings])
    assert found.modules.keys() == {"stage", "base"}


def test_libraries_are_those_that_what_is_reached_imports(tmp_path):
    found = write(tmp_path, PROGRAM).code([ROOT])
    assert {"numpy", "torch"} <= found.libraries
    assert "pandas" not in found.libraries
    named = versions({"json", "torch", "yaml", "llmcompressor"}, ["click"])
    assert named.keys() == {"torch", "PyYAML", "llmcompressor", "compressed-tensors", "click"}
    assert "+" not in named["torch"] and versions({"no_such"}) == {"no_such": "absent"}


# A digest of each form of code that a version of Python might write down in a way of its own.
FORMS = """
def run(a, /, b=1, *c, d: int = 2, **e):
    x: int = 1
    y = f"{a!r:>{b}} {x}" "joined" 'quotes' r"\\d"; q = b"\\x00"
    with open(a) as file, open(b): z = [*c, *(n for n in d if n)]
    try: pass
    except (A, B) as error: raise
    finally: del x
    match a:
        case {"k": [1, *rest], **more} if rest: return -1.5e300j
        case P(q=None) | True: pass
    x: list[int]
    async def inner(a: int) -> None: y: int = 1
    async def more(): await g(); yield (w := lambda v, *, u=...: v[1:2, ::3])
    @d.e(1)
    class K(A, metaclass=M): s: "t" = 10**20
    global G; return not a if b < c <= d is not e else ~a @ b // 2
"""
STABLE = "12e8e311f7c7"
DUMP = """
import sys, types
sys.path.insert(0, sys.argv[1])
sys.modules["pydantic"] = types.ModuleType("pydantic")
sys.modules["pydantic"].BaseModel = object
from pathlib import Path
from ptq_dynamics.engine.code import Node, Program
print(*Program(Path(sys.argv[2]), "p").code([Node("p.stage", "run")]).modules.values())
"""


def pythons() -> list[str]:
    """This Python, and others that are installed."""
    names = [f"python3.{minor}" for minor in range(11, 16)]
    folders = os.environ["PATH"].split(os.pathsep) + glob(f"{Path.home()}/.pyenv/versions/*/bin")
    found = {path.resolve() for f in folders for n in names if (path := Path(f) / n).exists()}
    return [sys.executable, *map(str, sorted(found))]


@pytest.mark.slow
def test_digests_are_the_same_under_every_version_of_python(tmp_path):
    write(tmp_path, {"stage": FORMS})
    said = {}
    for python in pythons():
        command = [python, "-I", "-c", DUMP, str(SOURCES), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # What pyenv has in its place may be no Python.
        assert done.returncode == 0 or python != sys.executable, done.stderr
        if done.returncode == 0:
            said[python] = done.stdout.strip()
    assert set(said.values()) == {STABLE}, said


# The project


@pytest.fixture(scope="module")
def project():
    return Program()


def stages(program: Program) -> list[Node]:
    found = []
    for name, path in program.files.items():
        if "\ndef run(context: Context[" in path.read_text():
            found.append(Node(name, "run"))
    return found


def test_components_of_a_kind_are_apart(project):
    """An edit of one layout, optimizer or quantizer touches no job of another."""
    for folder in ("figures.layouts", "train.optimizers", "quantize.methods"):
        prefix = f"{PACKAGE}.{folder}."
        names = [name for name in project.files if name.startswith(prefix)]
        for stage in stages(project):
            reached = {node.module for node in project.reach([stage])[0]}
            assert not (reached - {stage.module}).intersection(names), (stage, folder)


def test_no_stage_reaches_what_plans(project):
    rooms = ("plan", "config", "cli", "report", "engine")
    for stage in stages(project):
        found = {name.split(".")[0] for name in project.code([stage]).modules}
        assert not found.intersection(rooms) - {stage.module.split(".")[1]}, stage


def test_no_text_that_digests_leave_out_is_read(project):
    """Code that catches a `Problem` by name raises another; lists of damage are in no result."""
    modules = {node.module for node in project.reach(stages(project))[0]}
    texts = {"Problem", "Exception", "AssertionError"}
    for module in sorted(modules - {f"{PACKAGE}.provenance.archive"}):
        for each in ast.walk(ast.parse(project.files[module].read_text())):
            if isinstance(each, ast.ExceptHandler) and each.name:
                caught = {n.id for n in ast.walk(each.type) if isinstance(n, ast.Name)}
                raises = isinstance(each.body[-1], ast.Raise)
                assert raises or not caught & texts, f"{module}, line {each.lineno}"
