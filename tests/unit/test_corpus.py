"""The corpus: equal bytes from every build, disjoint splits, and one line for every defect."""

import hashlib
from itertools import accumulate

import numpy as np
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import packages, splits, tokens
from ptq_dynamics.corpus.packages import installed_files, python_files
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.splits import HELD_OUT
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from support import SCALE, artifacts, differing, job_file, one_line, python, specification
from transformers import AutoTokenizer

CONFIG = SCALE["corpora"]["main"]


@pytest.fixture(scope="module")
def documents():
    found = packages.documented(CONFIG["packages"], CONFIG["shortest_document"])
    return packages.by_digest(found)


@pytest.mark.slow
def test_a_build_with_other_threads_gives_equal_bytes(workspace, corpus, tmp_path):
    spec = specification(workspace.plan.trajectories.corpus("main"))
    command = ["-m", "ptq_dynamics.engine.run", job_file(tmp_path, spec)]
    threads = {"OMP_NUM_THREADS": "2", "RAYON_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
    done = python(command, tmp_path, {**threads, "PYTHONHASHSEED": "7"})
    assert done.returncode == 0, done.stderr
    again = artifacts(tmp_path / spec["folder"])
    assert not differing(artifacts(corpus.folder), again)
    assert "train.bin" in again and "tokenizer/tokenizer.json" in again


def test_no_document_is_in_two_splits(corpus, documents):
    wanted = {name: CONFIG[name] * CONFIG["characters_per_token"] for name in HELD_OUT}
    dealt = splits.deal(documents, wanted)
    assert sum(map(len, dealt.values())) == len(documents) == corpus.facts["documents"]
    digests = [hashlib.sha256(text.encode()).digest() for text in documents]
    assert digests == sorted(digests)
    for one, other in ((a, b) for a in dealt for b in dealt if a < b):
        assert not set(dealt[one]) & set(dealt[other]), (one, other)
    # The token files hold those documents and no others.
    tokenizer = AutoTokenizer.from_pretrained(corpus.subfolder("tokenizer"))
    for name in HELD_OUT:
        text = tokenizer.decode(tokens.read_split(corpus, name).tolist())
        whole = "".join(dealt[name])
        assert whole.startswith(text.rstrip("\ufffd")), name
    train = tokenizer.decode(tokens.read_split(corpus, "train").tolist())
    assert train.split(splits.DOCUMENT_END)[:-1] == dealt["train"]


def test_calibration_text_says_where_its_documents_end(corpus, documents, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(corpus.subfolder("tokenizer"))
    encoded = splits.encode(tokenizer.backend_tokenizer, documents, np.dtype("<u2"))
    splits.save_split(tmp_path, "calibration", encoded, 5000)
    found = manifest.describe(tmp_path, tmp_path / "manifest.json", {"dtype": "uint16"})
    by_hand = [tokenizer.encode(text, add_special_tokens=False) for text in documents[:100]]
    ends = np.fromfile(found.file("calibration.ends.bin"), dtype="<u8").tolist()
    assert ends == [end for end in accumulate(map(len, by_hand)) if end <= 5000]
    table = tokens.documents(found, 140, len(ends)).tolist()
    assert table == [row[:140] + [-1] * (140 - len(row)) for row in by_hand[: len(ends)]]
    assert {len(row) < 140 for row in by_hand[: len(ends)]} == {True, False}
    with pytest.raises(Problem, match=rf"holds {len(ends)} whole documents, but 500 are required"):
        tokens.documents(found, 140, 500)
    assert "calibration.ends.bin" in corpus.files


MODULE, DOCSTRING = "brief/__init__.py", '"""A docstring that is long enough."""\n'


def test_packages_that_no_corpus_can_be_made_of_are_one_line(install):
    folder = install({MODULE: DOCSTRING})
    text = "A docstring that is long enough."
    assert [*packages.documented(["brief"], 5)] == [text]
    assert {*packages.documented(["brief"], 5, code=True)} == {text, DOCSTRING}
    (folder / MODULE).write_text('"""A docstring that was edited...."""\n')
    with pytest.raises(Problem, match=r"__init__\.py of brief was altered; reinstall brief"):
        installed_files("brief", python_files)
    with pytest.raises(Problem, match=r"package 'no-such-package' of the corpus is not in"):
        installed_files("no-such-package", python_files)


def test_a_package_with_compiled_parts_is_a_problem(install):
    install({MODULE: DOCSTRING}, tag="cp311-cp311-manylinux_2_17_x86_64")
    with pytest.raises(Problem, match=r"package 'brief' of the corpus is not a pure-Pyt"):
        installed_files("brief", python_files)


@pytest.mark.parametrize(
    ("split", "change"),
    [("train", {"train": 10_000_000}), ("validation", {"characters_per_token": 0.1})],
)
def test_too_little_text_is_a_problem_that_names_the_split(split, change, tmp_path):
    config = {**CONFIG, "packages": ["click"], **change}
    corpus = EmbeddedCorpus(**config)
    words = f"{split} tokens, but {config[split]:,} are required", f"lower its {split} in the"
    with one_line(*words):
        corpus.write(Context("main", corpus, {}, tmp_path, tmp_path, Progress("main")))


def test_blocks_are_consecutive_and_too_few_are_a_problem(tmp_path):
    np.arange(35, dtype="<u2").tofile(tmp_path / "probe.bin")
    corpus = manifest.describe(tmp_path, tmp_path / "manifest.json", {"dtype": "uint16"})
    assert tokens.blocks(corpus, "probe", 8).tolist() == np.arange(32).reshape(4, 8).tolist()
    assert tokens.blocks(corpus, "probe", 8, 2).tolist() == np.arange(16).reshape(2, 8).tolist()
    with pytest.raises(Problem, match=r"probe\.bin holds 4 blocks of 8 tokens, but 5 are required"):
        tokens.blocks(corpus, "probe", 8, 5)
