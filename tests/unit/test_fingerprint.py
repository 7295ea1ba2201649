"""Fingerprints of code: what counts as an edit, and which modules a stage's result depends on."""

import ast
import importlib.metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.jobs import fingerprint
from ptq_dynamics.problem import Problem
from support import ROOT

PACKAGE = ROOT / "workflow" / "ptq_dynamics"

SOURCE = '''"""A module."""
import math

RATE = 0.1


def area(radius, scale=1):
    """The area of a circle."""
    return scale * math.pi * radius**2


class Shape:
    """A shape."""

    sides = 3

    async def draw(self):
        "Draw it."
        return [self.sides, "text"]
'''

# What changes nothing: comments, docstrings, layout.
SAME = {
    "comment": SOURCE.replace("RATE = 0.1", "# A comment.\nRATE = 0.1  # another"),
    "module docstring": SOURCE.replace("A module.", "Another text."),
    "no module docstring": SOURCE.replace('"""A module."""\n', ""),
    "function docstring": SOURCE.replace("The area of a circle.", "Something else.\n\n    More."),
    "no function docstring": SOURCE.replace('    """The area of a circle."""\n', ""),
    "class docstring": SOURCE.replace('    """A shape."""\n', ""),
    "docstring of an async function": SOURCE.replace('        "Draw it."\n', ""),
    "blank lines": SOURCE.replace("\n\n\n", "\n\n\n\n\n"),
    "line breaks": SOURCE.replace("(radius, scale=1)", "(\n    radius,\n    scale=1,\n)"),
    "parentheses": SOURCE.replace("scale * math.pi * radius**2", "((scale * math.pi) * radius**2)"),
    "quotes": SOURCE.replace('"text"', "'text'"),
    "number notation": SOURCE.replace("0.1", "1e-1"),
    "line endings": SOURCE.replace("\n", "\r\n"),
}

# What changes something.
OTHER = {
    "constant": SOURCE.replace("0.1", "0.2"),
    "constant type": SOURCE.replace("sides = 3", "sides = 3.0"),
    "default": SOURCE.replace("scale=1", "scale=2"),
    "operator": SOURCE.replace("scale * math", "scale + math"),
    "precedence": SOURCE.replace("scale * math.pi * radius**2", "(scale * math.pi * radius)**2"),
    "name": SOURCE.replace("area", "surface"),
    "argument name": SOURCE.replace("radius", "r"),
    "keyword-only": SOURCE.replace("(radius, scale", "(radius, *, scale"),
    "string": SOURCE.replace('"text"', '"texts"'),
    "bytes": SOURCE.replace('"text"', 'b"text"'),
    "f-string": SOURCE.replace('"text"', 'f"text"'),
    "order": SOURCE.replace('[self.sides, "text"]', '["text", self.sides]'),
    "import": SOURCE.replace("import math", "import math, json"),
    "import alias": SOURCE.replace("import math\n", "import math as m\n"),
    "not a docstring": SOURCE.replace("    sides = 3\n", '    sides = 3\n    "a string"\n'),
    "second string": SOURCE.replace('"""A module."""\n', '"""A module."""\n"another"\n'),
    "decorator": SOURCE.replace("def area", "@staticmethod\ndef area"),
    "async": SOURCE.replace("    async def", "    def"),
    "annotation": SOURCE.replace("radius, scale", "radius: float, scale"),
    "statement": SOURCE + "\nprint(RATE)\n",
    "removed statement": SOURCE.replace("RATE = 0.1\n", ""),
    "moved to else": SOURCE + "\nif RATE:\n    a = 1\n    b = 2\n",
    "base class": SOURCE.replace("class Shape:", "class Shape(dict):"),
}


def write(root, files):
    for name, text in {"ptq_dynamics/__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root


def digest(tmp_path, text, name="case"):
    root = write(tmp_path / name, {"ptq_dynamics/shape.py": text})
    return fingerprint.code("ptq_dynamics.shape", root)["ptq_dynamics.shape"]


@pytest.mark.parametrize("edit", SAME)
def test_comments_docstrings_and_layout_change_nothing(tmp_path, edit):
    assert SAME[edit] != SOURCE
    assert digest(tmp_path, SAME[edit], "new") == digest(tmp_path, SOURCE, "old")


@pytest.mark.parametrize("edit", OTHER)
def test_every_other_edit_changes_the_fingerprint(tmp_path, edit):
    assert OTHER[edit] != SOURCE
    assert digest(tmp_path, OTHER[edit], "new") != digest(tmp_path, SOURCE, "old")


def test_different_edits_have_different_fingerprints(tmp_path):
    found = {edit: digest(tmp_path, text, edit) for edit, text in OTHER.items()}
    assert len(set(found.values())) == len(found), found


def test_branches_of_a_statement_are_told_apart(tmp_path):
    texts = [
        "if x:\n    a = 1\n    b = 2\n",
        "if x:\n    a = 1\nelse:\n    b = 2\n",
        "if x:\n    a = 1\nb = 2\n",
        "while x:\n    a = 1\n    b = 2\n",
    ]
    assert len({digest(tmp_path, text, str(n)) for n, text in enumerate(texts)}) == len(texts)


@given(st.integers() | st.floats() | st.text() | st.binary() | st.booleans() | st.none())
def test_constants_are_told_apart(value):
    other = not value if isinstance(value, bool) else (value, 1)
    one, two = (canonical(f"f({v!r})") for v in (value, other))
    assert one != two


def canonical(text):
    parts = []
    fingerprint._canonical(ast.parse(text), parts, imports=[])
    return "".join(parts)


CLOSURE = {
    "ptq_dynamics/a.py": "import json\nfrom ptq_dynamics import b\nfrom ptq_dynamics.d import f\n",
    "ptq_dynamics/b.py": "def g():\n    import ptq_dynamics.sub.c as c\n    return c\n",
    "ptq_dynamics/d.py": "import numpy\nf = 1\n",
    "ptq_dynamics/sub/__init__.py": "from ptq_dynamics import a\n",
    "ptq_dynamics/sub/c.py": "def h():\n    import matplotlib.pyplot\n",
    "ptq_dynamics/other.py": "import pandas\n",
    "ptq_dynamics/typed.py": "if TYPE_CHECKING:\n    from ptq_dynamics.other import x\n",
}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        # Transitive, through functions, with the packages on the way; circles end.
        ("a", {"a", "b", "d", "sub", "sub.c"}),
        ("sub.c", {"a", "b", "d", "sub", "sub.c"}),
        ("d", {"d"}),
        ("typed", {"typed", "other"}),
    ],
)
def test_the_code_of_a_stage_is_all_that_it_imports(tmp_path, module, expected):
    root = write(tmp_path, CLOSURE)
    found = set(fingerprint.code(f"ptq_dynamics.{module}", root))
    assert found == {"ptq_dynamics", *(f"ptq_dynamics.{name}" for name in expected)}


def test_an_edit_far_down_changes_what_imports_it_and_nothing_else(tmp_path):
    old = write(tmp_path / "old", CLOSURE)
    edited = CLOSURE["ptq_dynamics/sub/c.py"] + "    return 1\n"
    new = write(tmp_path / "new", {**CLOSURE, "ptq_dynamics/sub/c.py": edited})
    changed = {
        name: fingerprint.code(f"ptq_dynamics.{name}", old)
        != fingerprint.code(f"ptq_dynamics.{name}", new)
        for name in ("a", "b", "d", "sub.c", "other", "typed")
    }
    assert changed == dict.fromkeys(("a", "b", "sub.c"), True) | dict.fromkeys(
        ("d", "other", "typed"), False
    )


def test_libraries_are_those_of_all_local_modules_with_their_versions(tmp_path):
    root = write(tmp_path, CLOSURE)
    found = fingerprint.environment("ptq_dynamics.a", root)
    assert set(found) == {"numpy", "matplotlib"}
    assert found["numpy"] == importlib.metadata.version("numpy").split("+")[0]


def test_an_absent_library_and_one_under_another_name(tmp_path):
    text = "import yaml\nimport no_such_library\nimport os\n"
    root = write(tmp_path, {"ptq_dynamics/a.py": text})
    found = fingerprint.environment("ptq_dynamics.a", root)
    version = importlib.metadata.version("PyYAML")
    assert found == {"PyYAML": version, "no_such_library": "absent"}


def test_a_module_that_is_not_there_is_a_problem(tmp_path):
    with pytest.raises(Problem, match=r"no module ptq_dynamics\.x; write workflow/ptq_dynamics/x"):
        fingerprint.code("ptq_dynamics.x", write(tmp_path, {}))


# The modules of this project


def stages():
    """Modules that have a stage's function `run`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        arguments = {f.name: [a.arg for a in f.args.args] for f in functions}
        if arguments.get("run") == ["context"]:
            found.append(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    return found


STAGES = stages()
FIGURES = [name for name in STAGES if ".figures." in name]
# The environment that a foreign method runs in is a stage too, and its reader.
METHODS = [n for n in STAGES if ".quantize." in n and not n.endswith(".environment")]


def test_all_stages_are_found():
    assert {
        "ptq_dynamics.trajectories.train",
        "ptq_dynamics.measure.loss",
        "ptq_dynamics.trajectories.average",
    } <= set(STAGES)
    assert len(FIGURES) >= 3 and len(METHODS) >= 2


@pytest.mark.parametrize("stage", [*FIGURES, *METHODS])
def test_a_figure_or_method_depends_on_no_other(stage):
    others = set(fingerprint.code(stage)) & {*FIGURES, *METHODS} - {stage}
    assert not others, f"an edit of {others} would rebuild what {stage} made"


def test_an_edit_of_the_training_module_retrains_and_rebuilds_nothing_else():
    assert "ptq_dynamics.trajectories.train" in fingerprint.code("ptq_dynamics.trajectories.train")
    for stage in set(STAGES) - {"ptq_dynamics.trajectories.train"}:
        assert "ptq_dynamics.trajectories.train" not in fingerprint.code(stage), stage


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_depends_on_what_decides_or_serves(stage):
    outside = ("config", "plan", "checks", "run", "record", "cli", "warm", "timeline")
    found = set(fingerprint.code(stage)) & {f"ptq_dynamics.{name}" for name in outside}
    assert not found


def test_libraries_of_the_projects_stages():
    libraries = {stage: set(fingerprint.environment(stage)) for stage in STAGES}
    assert all("matplotlib" in libraries[figure] for figure in FIGURES)
    drawing = {"matplotlib", "seaborn"}
    for stage in set(STAGES) - set(FIGURES):
        assert not libraries[stage] & drawing, f"a newer matplotlib would rebuild {stage}"
    for figure in FIGURES:
        assert "torch" not in libraries[figure], f"a newer torch would redraw {figure}"
    assert "torch" in libraries["ptq_dynamics.trajectories.train"]
    assert "llmcompressor" in libraries["ptq_dynamics.quantize.gptq"]
    assert "llmcompressor" not in libraries["ptq_dynamics.quantize.rtn"]


def test_every_library_is_installed_under_the_name_in_its_fingerprint():
    # Quantizers that run in environments of their own name libraries that this one lacks.
    absent = {
        (stage, name)
        for stage in ("ptq_dynamics.trajectories.train", "ptq_dynamics.measure.loss", *FIGURES)
        for name, version in fingerprint.environment(stage).items()
        if version == "absent"
    }
    assert not absent
