"""Mixes: other text to train on, and the very text of their corpus to measure on."""

import pytest
from ptq_dynamics.corpus import packages, splits, tokens
from ptq_dynamics.corpus.sources.mix import MixCorpus
from ptq_dynamics.corpus.splits import HELD_OUT
from support import SCALE, artifacts, differing, plan, tiny_config
from transformers import AutoTokenizer

pytestmark = pytest.mark.slow

MAIN = SCALE["corpora"]["main"]
MIXES = {name: each for name, each in SCALE["corpora"].items() if each["source"] == "mix"}


@pytest.fixture(scope="module")
def here(workspace, tmp_path_factory):
    """A workspace with the corpus that the mixes are of."""
    folder = tmp_path_factory.mktemp("mixes")
    return workspace.beside(folder, plan("smoke", tiny_config(folder)))


@pytest.fixture(scope="module")
def built(here):
    """Every mix of scale smoke, made by its job."""
    return {name: here.build(here.plan.trajectories.corpus(name)) for name in MIXES}


@pytest.fixture(scope="module")
def held_out():
    """The documents that the corpus holds out."""
    found = packages.documented(MAIN["packages"], MAIN["shortest_document"])
    documents = packages.by_digest(found)
    wanted = {name: MAIN[name] * MAIN["characters_per_token"] for name in HELD_OUT}
    dealt = splits.deal(documents, wanted)
    return [text for name in HELD_OUT for text in dealt[name]]


def collect(text, names, shortest):
    """The documents of one kind of text of some packages."""
    shape = {"of": "main", "packages": names, "shortest_document": shortest, "train": 1}
    return MixCorpus(source="mix", text=text, **shape).texts()


def text_of(corpus):
    """The text that a corpus has for training, read from its tokens."""
    tokenizer = AutoTokenizer.from_pretrained(corpus.subfolder("tokenizer"))
    return tokenizer.decode(tokens.read_split(corpus, "train").tolist())


def on_one_line(text):
    """Text whose line breaks and indentation do not count."""
    return " ".join(text.split())


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_is_its_corpus_but_for_the_text_to_train_on(corpus, built, held_out, name):
    about, mix, facts = MIXES[name], built[name], built[name].facts
    own, theirs = artifacts(mix.folder), artifacts(corpus.folder)
    assert differing(own, theirs) == ["manifest.json", "train.bin"]
    assert {"validation.bin", splits.ENDS, "tokenizer/tokenizer.json"} <= own.keys()
    documents = collect(about["text"], about["packages"], about["shortest_document"])
    text = text_of(mix)
    assert text.split(splits.DOCUMENT_END) == [*documents, ""]
    assert facts["documents"] == len(documents) > 1
    assert facts["characters"] == sum(map(len, documents))
    count = len(tokens.read_split(mix, "train"))
    assert facts["tokens"] == {**corpus.facts["tokens"], "train": count}
    assert count >= about["train"] and {*facts["packages"]} == {*about["packages"]}
    assert facts["dtype"] == corpus.facts["dtype"] and facts["digest"] != corpus.facts["digest"]
    text = on_one_line(text)
    assert not [each for each in held_out if on_one_line(each) in text]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""é."""; ä = "é"  # ö\n', '; ä = "é"  # ö\n'),
        (
            'def f():\n    "ß"  # why\n    def g():\n        "g"',
            "def f():\n      # why\n    def g():\n",
        ),
        ('x = 1\n\x0c\n"""After\ta form feed."""\n# End.', "x = 1\n\x0c\n# End."),
    ],
)
def test_strings_that_stand_alone_are_taken_out(tmp_path, source, expected):
    file = tmp_path / "module.py"
    file.write_text(source)
    assert packages.taken_out(file) == expected


def test_source_files_are_code_or_tests(install):
    code = ["core.py", "testing/helper.py", "latest.py", "contest.py", "attest/tests.py"]
    tests = ["test/a.py", "sub/tests/deep/b.py", "test_c.py", "c_test.py", "conftest.py"]
    files = {f"brief/{name}": f"name = {name!r}\n" for name in [*code, *tests]}
    install({**files, "brief/tests/data.txt": "No source.\n"})
    for text, names in (("code", code), ("tests", tests)):
        assert {*collect(text, ["brief"], 1)} == {f"name = {name!r}" for name in names}


def test_descriptions_are_what_stands_below_the_headers_and_licences(install):
    info = "brief-1.0.dist-info"
    headers = "Metadata-Version: 2.1\nName: brief\nVersion: 1.0\nLicense-File: COPYING\n"
    files = {
        f"{info}/METADATA": f"{headers}\n# Brief\n\nIt is brief.\n",
        f"{info}/COPYING": "Copy it.\n",
        f"{info}/licenses/third/LICENSE": "Take it.\n",
        f"{info}/licenses/same/LICENSE": "Take it.\n\n",
        f"{info}/entry_points.txt": "[console_scripts]\n",
        "brief/vendored-1.0.dist-info/METADATA": "Name: vendored\n\nOf another.\n",
    }
    install(files)
    expected = {"# Brief\n\nIt is brief.", "Copy it.", "Take it."}
    assert {*collect("descriptions", ["brief"], 1)} == expected
    assert collect("descriptions", ["brief"], 9) == ["# Brief\n\nIt is brief."]
