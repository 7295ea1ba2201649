"""The corpus: equal bytes from every build, disjoint splits, and one line for every defect."""

import base64
import hashlib
import importlib
import json
from itertools import islice, pairwise, product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.content import canonical
from ptq_dynamics.corpus import datasets as public
from ptq_dynamics.corpus import embedded, splits, tokens
from ptq_dynamics.jobs import manifest
from ptq_dynamics.jobs.context import Context, Progress
from ptq_dynamics.problem import Problem
from support import (
    SCALE,
    artifacts,
    differing,
    edit_yaml,
    plan,
    python,
    specification,
    tiny_config,
)
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer

CONFIG = SCALE["corpora"]["main"]
BUILD = (
    "import json, sys; from ptq_dynamics.jobs.execute import execute; "
    "sys.exit(execute(json.load(open('spec.json'))))"
)


@pytest.fixture(scope="module")
def documents():
    return embedded.collect(CONFIG["packages"], False, CONFIG["shortest_document"])


def context(out, config):
    out.mkdir(exist_ok=True)
    return Context("corpus", config, {}, out, out / ".scratch", Progress("corpus"))


def build(stage, out, config):
    """Manifest of what a stage of the corpus makes."""
    facts = stage.run(context(out, config))
    return manifest.describe(out, out / "manifest.json", facts)


# The build


def readers(found, run):
    """Jobs of a plan that read the corpus of a run."""
    yield found.train(run)
    yield found.quantize(run, "rtn3", "all")
    yield found.evaluate(run, "fp", "all")
    yield found.curvature(run, "sharpness", "all")


def test_a_model_has_the_corpus_it_names(tmp_path):
    config = tiny_config(tmp_path)
    before = plan("smoke", config)
    other = {**CONFIG, "vocabulary": 310}

    def change(scale):
        scale["corpora"]["other"] = other
        scale["models"]["kumar-70m"]["corpus"] = "other"

    edit_yaml(config / "scales/smoke.yaml", change)
    after = plan("smoke", config)
    assert after.corpus("other").folder == "results/smoke/corpus/other"
    assert json.loads(after.corpus("other").spec())["settings"]["vocabulary"] == 310
    models = {name: after.timeline.trunk(name).model for name in after.config.runs.runs}
    assert set(models.values()) == {"main", "kumar-70m", "kumar-160m"}
    for name, model in models.items():
        corpus = "other" if model == "kumar-70m" else "main"
        for old, new in zip(readers(before, name), readers(after, name), strict=True):
            assert new.inputs["corpus"] == [f"results/smoke/corpus/{corpus}/manifest.json"]
            assert (old.spec() == new.spec()) == (corpus == "main"), new.name
        vocabulary = after.train(name).settings["model"]["vocabulary"]
        assert vocabulary == after.config.scale.corpora[corpus].vocabulary


@pytest.mark.slow
def test_a_build_with_other_threads_gives_equal_bytes(workspace, corpus, tmp_path):
    spec = specification(workspace.plan.corpora.corpus("main"))
    (tmp_path / "spec.json").write_text(canonical(spec))
    threads = {"OMP_NUM_THREADS": "2", "RAYON_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "true"}
    done = python(["-c", BUILD], tmp_path, {**threads, "PYTHONHASHSEED": "7"})
    assert done.returncode == 0, done.stderr
    again = artifacts(tmp_path / spec["folder"])
    assert not differing(artifacts(corpus.folder), again)
    assert "train.bin" in again and "tokenizer/tokenizer.json" in again


def test_splits_hold_what_was_asked_for(corpus):
    sizes = {name: len(tokens.read(corpus, name)) for name in splits.SPLITS}
    for name in splits.HELD_OUT:
        assert sizes[name] == CONFIG[name]
    assert sizes["train"] >= CONFIG["train"]
    assert corpus.facts["tokens"] == sizes
    assert corpus.facts["digest"] == splits.digest(corpus.folder)
    largest = max(int(tokens.read(corpus, name).max()) for name in splits.SPLITS)
    assert largest < CONFIG["vocabulary"]


def test_no_document_is_in_two_splits(corpus, documents):
    wanted = {name: CONFIG[name] * CONFIG["characters_per_token"] for name in splits.HELD_OUT}
    dealt = embedded.deal(documents, wanted)
    assert sum(map(len, dealt.values())) == len(documents) == corpus.facts["documents"]
    for one, other in ((a, b) for a in dealt for b in dealt if a < b):
        assert not set(dealt[one]) & set(dealt[other]), (one, other)
    # The token files hold those documents and no others.
    tokenizer = AutoTokenizer.from_pretrained(corpus.subfolder("tokenizer"))
    for name in splits.HELD_OUT:
        text = tokenizer.decode(tokens.read(corpus, name).tolist())
        whole = "".join(dealt[name])
        assert whole.startswith(text.rstrip("\ufffd")), name
    train = tokenizer.decode(tokens.read(corpus, "train").tolist())
    assert train.split(embedded.END)[:-1] == dealt["train"]


@given(
    st.lists(st.text(min_size=1, max_size=20), unique=True, max_size=60),
    st.tuples(*[st.integers(0, 100)] * 3),
)
def test_dealing_gives_every_document_to_one_split(texts, wanted):
    dealt = embedded.deal(texts, dict(zip(splits.HELD_OUT, wanted, strict=True)))
    given_out = [text for name in (*splits.HELD_OUT, "train") for text in dealt[name]]
    assert given_out == texts
    for name, least in zip(splits.HELD_OUT, wanted, strict=True):
        held = sum(map(len, dealt[name]))
        assert held >= least or not dealt["train"], (name, held)
        assert not dealt[name] or held - len(dealt[name][-1]) < least, (name, "more than needed")


def test_documents_are_distinct_and_ordered_by_their_digest(documents):
    digests = [hashlib.sha256(text.encode()).digest() for text in documents]
    assert all(a < b for a, b in pairwise(digests))
    assert min(map(len, documents)) >= CONFIG["shortest_document"]


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("One line.", "One line."),
        ("\n    First.\n\n      More.\n    ", "First.\n\n  More."),
        ("First.\n\n    Second.\n    \tTab.", "First.\n\nSecond.\n    Tab."),
        ("", ""),
    ],
)
def test_docstrings_lose_the_indentation_of_their_code(docstring, expected):
    assert embedded.dedent(docstring) == expected


def test_source_files_are_documents_where_asked_for():
    without = embedded.collect(["click"], False, 100)
    documents = embedded.collect(["click"], True, 100)
    source = next(path for path in embedded.installed_files("click") if path.name == "core.py")
    assert source.read_text() in documents
    assert source.read_text() not in without
    assert set(without) < set(documents)


# Defects


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution `brief` with one module, as pip would from a wheel."""

    def do(tag="py3-none-any", text='"""A docstring that is long enough."""\n'):
        info = tmp_path / "brief-1.0.dist-info"
        (tmp_path / "brief").mkdir()
        info.mkdir()
        module = tmp_path / "brief" / "__init__.py"
        module.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(module.read_bytes()).digest()).decode()
        record = f"brief/__init__.py,sha256={digest.rstrip('=')},{len(text)}\n"
        (info / "RECORD").write_text(record + "brief-1.0.dist-info/RECORD,,\n")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brief\nVersion: 1.0\n")
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return module

    return do


def test_an_installed_package_is_read(install):
    install()
    assert embedded.collect(["brief"], False, 5) == ["A docstring that is long enough."]


def test_an_altered_file_is_a_problem(install):
    install().write_text('"""A docstring that was edited...."""\n')
    with pytest.raises(Problem, match=r"__init__\.py of brief was altered; reinstall brief"):
        embedded.installed_files("brief")


def test_a_package_with_compiled_parts_is_a_problem(install):
    install(tag="cp311-cp311-manylinux_2_17_x86_64")
    with pytest.raises(
        Problem, match=r"packages of the corpus names 'brief', which is not a pure-Pyt"
    ):
        embedded.installed_files("brief")


def test_an_absent_package_is_a_problem():
    with pytest.raises(
        Problem, match=r"packages of the corpus names 'no-such-package', which is not in"
    ):
        embedded.installed_files("no-such-package")


@pytest.mark.parametrize(
    ("split", "change"),
    [("train", {"train": 10_000_000}), ("validation", {"characters_per_token": 0.1})],
)
def test_too_little_text_is_a_problem_that_names_the_split(split, change, tmp_path):
    config = {**CONFIG, "packages": ["click"], **change}
    with pytest.raises(Problem) as caught:
        embedded.run(context(tmp_path / "out", config))
    message = str(caught.value)
    assert f"{split} tokens, {config[split]:,} are asked for" in message
    assert f"lower its {split} in the scale's file" in message


# Token files


@given(st.lists(st.lists(st.integers(0, 65535), max_size=9), max_size=9), st.integers(0, 90))
def test_token_files_are_cut_to_size_or_whole(tmp_path_factory, texts, wanted):
    folder = tmp_path_factory.mktemp("tokens")
    arrays = [np.asarray(text, dtype=np.uint16) for text in texts]
    flat = [token for text in texts for token in text]
    for whole in (False, True):
        if wanted > len(flat):
            with pytest.raises(Problem, match=r"lower its train"):
                splits.write(folder, "train", arrays, wanted, whole=whole)
            continue
        written = splits.write(folder, "train", arrays, wanted, whole=whole)
        expected = flat if whole else flat[:wanted]
        assert (folder / "train.bin").read_bytes() == np.asarray(expected, dtype="<u2").tobytes()
        assert written == len(expected)


def test_blocks_are_consecutive_and_too_few_are_a_problem(tmp_path):
    np.arange(35, dtype="<u2").tofile(tmp_path / "probe.bin")
    corpus = manifest.describe(tmp_path, tmp_path / "manifest.json", {"dtype": "uint16"})
    assert tokens.blocks(corpus, "probe", 8).tolist() == np.arange(32).reshape(4, 8).tolist()
    assert tokens.blocks(corpus, "probe", 8, 2).tolist() == np.arange(16).reshape(2, 8).tolist()
    with pytest.raises(Problem, match=r"probe\.bin holds 4 blocks of 8 tokens, 5 are asked for"):
        tokens.blocks(corpus, "probe", 8, 5)


def test_files_are_as_wide_as_the_vocabulary_needs(corpus):
    widths = {257: 2, 50304: 2, 65536: 2, 65537: 4, 100352: 4, 128256: 4, 1 << 32: 4}
    assert {size: tokens.dtype(size).itemsize for size in widths} == widths
    assert corpus.facts["dtype"] == "uint16"


# Public data sets


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    texts = [f"Document {n}: {'word ' * (n % 7)}é\n" for n in range(400)]
    pd.DataFrame({"content": texts}).to_parquet(folder / "part.parquet")
    return folder, texts


def public_config(folder, path, **changes):
    source = {"path": str(folder), "name": None, "data_files": None, "split": "train"}
    source |= {"revision": None, "field": "content", "skip": 0}
    sources = {f"{name}_from": {**source, "skip": 100 * n} for n, name in enumerate(splits.SPLITS)}
    sizes = {"train": 900, "validation": 600, "calibration": 500, "probe": 300}
    return {"tokenizer": str(path), "vocabulary": 300, **sources, **sizes, **changes}


def test_a_public_data_set_gives_the_tokens_of_its_text(corpus, parquet, tmp_path):
    folder, texts = parquet
    config = public_config(folder, corpus.subfolder("tokenizer"))
    found = build(public, tmp_path / "out", config)
    tokenizer = AutoTokenizer.from_pretrained(corpus.folder / "tokenizer")
    for n, name in enumerate(splits.SPLITS):
        end = [tokenizer.eos_token_id] if name == "train" else []
        by_hand = [
            token
            for text in texts[100 * n :]
            for token in tokenizer.encode(text, add_special_tokens=False) + end
        ]
        assert tokens.read(found, name).tolist() == by_hand[: config[name]], name
        assert found.facts["tokens"][name] == config[name]
    copy = AutoTokenizer.from_pretrained(tmp_path / "out" / "tokenizer")
    assert copy.encode(texts[5]) == tokenizer.encode(texts[5])


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A byte-level BPE with 128,000 tokens, as Llama 3 has, its special tokens above them."""
    folder = tmp_path_factory.mktemp("wide")
    letters = "etaoinsrhldcu"
    pairs = [(a, b) for a in letters for b in letters]
    fours = list(islice(product(map("".join, pairs), repeat=2), 28561))
    eights = list(islice(product(map("".join, fours), repeat=2), 128_000))
    known = sorted(ByteLevel.alphabet())
    merges = [*pairs, *fours, *eights][: 128_000 - len(known)]
    vocabulary = {token: n for n, token in enumerate([*known, *map("".join, merges)])}
    assert len(vocabulary) == 128_000
    bpe = Tokenizer(BPE(vocabulary, merges))
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    bpe.decoder = ByteLevelDecoder()
    bpe.add_special_tokens([embedded.END])
    embedded.save_tokenizer(bpe, folder)
    return folder


def test_tokens_above_65535_are_kept(wide, tmp_path):
    texts = [f"{'eeeaeteo' * (n % 3)} document {n}" for n in range(300)]
    (tmp_path / "data").mkdir()
    pd.DataFrame({"content": texts}).to_parquet(tmp_path / "data" / "part.parquet")
    config = public_config(tmp_path / "data", wide, vocabulary=128256)
    for name in splits.SPLITS:
        config[f"{name}_from"] |= {"skip": 0}
    found = build(public, tmp_path / "out", config)
    assert found.facts["dtype"] == "uint32"
    for name in splits.SPLITS:
        assert found.files[f"{name}.bin"]["size"] == 4 * config[name]
    tokenizer = AutoTokenizer.from_pretrained(found.subfolder("tokenizer"))
    by_hand = [token for text in texts for token in [*tokenizer.encode(text), 128_000]]
    assert max(by_hand[:900]) == 128_000 == tokenizer.eos_token_id
    assert sum(65535 < token < 128_000 for token in by_hand[:900]) > 20
    assert tokens.read(found, "train").tolist() == by_hand[:900]
    blocks = tokens.blocks(found, "validation", 50, 12)
    text = tokenizer.decode(blocks.flatten())
    assert blocks.dtype == torch.int64
    assert "".join(texts).startswith(text)
    batch = tokens.TrainingData(found, 16, 4, seed=3).at(0)
    order = np.random.Generator(np.random.PCG64([3, 0])).permutation(899 // 16)
    assert batch.tolist() == [by_hand[16 * n : 16 * n + 17] for n in order[:4]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": 10**9}, r"lower its train"),
        ({"vocabulary": 299}, r"vocabulary is 299, fewer than the 300 tokens"),
        ({"tokenizer": "no/such-tokenizer"}, r"tokenizer 'no/such-tokenizer' cannot"),
    ],
)
def test_defects_of_a_public_source_are_problems(corpus, parquet, tmp_path, change, words):
    config = public_config(parquet[0], corpus.subfolder("tokenizer"), **change)
    with pytest.raises(Problem, match=words):
        public.run(context(tmp_path / "out", config))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"field": "text"}, "has no field 'text'; set field"),
        ({"path": "no-such-folder"}, "data set no-such-folder cannot be read"),
        ({"split": "test"}, "cannot be read.*test"),
    ],
)
def test_defects_of_a_data_set_are_problems(corpus, parquet, change, words):
    source = public_config(parquet[0], corpus.subfolder("tokenizer"))["train_from"]
    with pytest.raises(Problem, match=words):
        list(public.texts({**source, **change}))
