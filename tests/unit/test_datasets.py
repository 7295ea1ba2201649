"""Public data sets: the tokens of their text, whatever interrupts, one way or another."""

import json
import os
import subprocess
import sys
from itertools import islice

import pandas as pd
import pytest
from datasets import load_dataset
from hub import COMMIT, serve
from ptq_dynamics.corpus import tokens
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.corpus.splits import DOCUMENT_END as END
from ptq_dynamics.corpus.splits import SPLITS
from ptq_dynamics.engine.job import Job
from support import Workspace, artifacts, differing, job_file, wait_until
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoTokenizer, PreTrainedTokenizerFast

pytestmark = pytest.mark.slow

CARD = """---
configs:
- config_name: default
  data_files: [{split: train, path: data/*/*}]
- config_name: sample-100BT
  data_files: [{split: train, path: sample/100BT/*}]
---
"""
WEB = ("HuggingFaceFW/fineweb-edu", "tiiuae/falcon-refinedweb", "allenai/c4")
SIZES = {"train": 9000, "validation": 600, "calibration": 500, "probe": 2000}


def text(name, n):
    return f"{name} {n}: {'some words ' * (n % 7)}é <|endoftext|>\na\n"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """Data sets in the layout of those of scale paper: Parquet with a card that names a
    configuration, Parquet without, and compressed JSON Lines; and one of many files."""
    root = tmp_path_factory.mktemp("web") / "datasets"
    edu, refined, c4 = (root / name for name in WEB)

    def save(path, name, rows, **columns):
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = pd.DataFrame({"text": [text(name, row) for row in range(rows)], "id": 3})
        frame = frame.rename(columns=columns)
        if path.suffix == ".gz":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path, row_group_size=30)

    for file in ("data/CC-MAIN-2013-20/000", *(f"sample/100BT/{n:03d}" for n in range(3))):
        save(edu / f"{file}_00000.parquet", file, 100)
    (edu / "README.md").write_text(CARD)
    for n in range(2):
        save(refined / f"data/train-0000{n}-of-00002-abc.parquet", f"web {n}", 90, text="content")
    for n in range(6):
        save(c4 / f"en/c4-train.{n:05d}-of-01024.json.gz", f"c4 {n}", 80)
    return root


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return corpus.subfolder("tokenizer")


def config(root, tokenizer, revision=None, /, **changes):
    """The corpus of scale paper with data sets below `root`, and small."""
    edu, refined, c4 = (
        {"path": f"{root}/{name}" if root else name, "revision": revision} for name in WEB
    )
    refined |= {"field": "content"}
    found = {
        "source": "datasets",
        "tokenizer": str(tokenizer),
        "vocabulary": 300,
        "train_from": {**edu, "name": "sample-100BT"},
        "validation_from": refined,
        "calibration_from": {**c4, "data_files": "en/c4-train.00001-of-01024.json.gz"},
        "probe_from": {**refined, "skip": 100},
        **SIZES,
        **changes,
    }
    return DatasetsCorpus(**found)


def job(corpus):
    return Job("corpus.corpus", "web", "results/corpus/web", {}, corpus)


def expected(corpus):
    """Tokens of every split by `load_dataset` and the tokenizer of transformers."""
    tokenizer = AutoTokenizer.from_pretrained(corpus.tokenizer)
    for name in SPLITS:
        source = getattr(corpus, f"{name}_from").model_dump(exclude={"field", "skip"})
        rows = load_dataset(**source, split="train", streaming=True)
        asked = getattr(corpus, f"{name}_from")
        ends = [tokenizer.eos_token_id] if name == "train" else []
        stream = [
            token
            for row in islice(rows, asked.skip, None)
            for token in tokenizer.encode(row[asked.field], add_special_tokens=False) + ends
        ]
        yield name, stream[: getattr(corpus, name)]


def test_tokens_are_those_of_load_dataset_and_transformers(web, tokenizer, tmp_path):
    corpus, sizes = config(web, tokenizer), {}
    built = Workspace(tmp_path, None).build(job(corpus))
    for name, stream in expected(corpus):
        assert tokens.read_split(built, name).tolist() == stream, name
        sizes[name] = len(stream)
    assert built.facts["tokens"] == SIZES == sizes


def test_tokens_above_65535_are_kept(tmp_path):
    """As Llama 3 has them, its special ones above the others."""
    ids, folder = [0, 65_535, 65_536, 127_999], tmp_path / "data"
    encoder = Tokenizer(WordLevel({**{f"w{n}": n for n in ids}, END: 128_000}))
    encoder.pre_tokenizer = WhitespaceSplit()
    encoder.add_special_tokens([END])
    fast = PreTrainedTokenizerFast(tokenizer_object=encoder, eos_token=END, bos_token=END)
    fast.save_pretrained(tmp_path / "wide")
    folder.mkdir()
    rows = [" ".join(f"w{n}" for n in ids)] * 500
    pd.DataFrame({"content": rows}).to_parquet(folder / "part.parquet")
    sources = {f"{name}_from": {"path": str(folder), "field": "content"} for name in SPLITS}
    asked = config(None, tmp_path / "wide", COMMIT, vocabulary=128256, **sources, train=900)
    found = Workspace(tmp_path, None).build(job(asked))
    assert found.facts["dtype"] == "uint32"
    for name in SPLITS:
        every = [*ids, 128_000] if name == "train" else ids
        assert tokens.read_split(found, name).tolist() == (every * 500)[: getattr(asked, name)]


@pytest.fixture
def hub(web, tokenizer, tmp_path):
    """A hub with the data sets, and with the tokenizer as EleutherAI/gpt-neox-20b."""
    root = tmp_path / "hub"
    (root / "EleutherAI").mkdir(parents=True)
    (root / "EleutherAI/gpt-neox-20b").symlink_to(tokenizer)
    (root / "datasets").symlink_to(web)
    with serve(root) as found:
        yield found


# The library retries sooner; notes are written after every batch where they are often.
BUILD = """
import json, sys
from datasets import config
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.sources import datasets
from ptq_dynamics.engine.execute import execute
config.STREAMING_READ_MAX_RETRIES = config.STREAMING_OPEN_MAX_RETRIES = 3
config.STREAMING_READ_RETRY_INTERVAL = config.STREAMING_OPEN_RETRY_INTERVAL = 0.1
if sys.argv[2] == "often":
    datasets.NOTE_EVERY, splits.BATCH = 0, 50
sys.exit(execute(json.load(open(sys.argv[1]))))
"""


def long(corpus):
    """The corpus with compressed JSON Lines to train with: five of six files are needed."""
    every = corpus.calibration_from.model_copy(update={"data_files": "en/*", "skip": 90})
    changes = {"train_from": every, "train": 11500, "validation_from": corpus.train_from}
    return corpus.model_copy(update=changes)


def test_a_killed_build_goes_on_to_the_bytes_of_folders_over_broken_connections(
    hub, web, tokenizer, tmp_path
):
    pinned = config(None, "EleutherAI/gpt-neox-20b", COMMIT, tokenizer_revision=COMMIT)
    asked = job(long(pinned))
    (folder := tmp_path / "build").mkdir()
    file = job_file(folder, asked.spec)
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}
    held, last = (f"en/c4-train.0000{number}-of-01024.json.gz" for number in (4, 5))

    def start(notes):
        command, variables = [sys.executable, "-c", BUILD, file, notes], {**os.environ, **own}
        return subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.PIPE)

    def noted():
        found = list(folder.glob(f"{asked.folder}/.work*/scratch/train.json"))
        return json.loads(found[0].read_text())[0] if found else 0

    hub.held.add(held)
    process = start("often")
    wait_until(lambda: noted() > 5000 and hub.asked[held])
    process.kill()
    process.communicate(timeout=60)
    # The library reads the last file before that again; and so do other splits, but later.
    second, broken = "en/c4-train.00001-of-01024.json.gz", "sample/100BT/000_00000.parquet"
    before = hub.asked[second]
    hub.held, hub.dropped = {last}, {broken: {1}}
    process = start("seldom")
    wait_until(lambda: hub.asked[last])
    assert hub.asked[second] == before == 1, "what had been read was read again"
    hub.release.set()
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert hub.asked[broken] > 1
    undisturbed = Workspace(tmp_path, None).build(job(long(config(web, tokenizer))))
    assert not differing(artifacts(undisturbed.folder), artifacts(folder / asked.folder))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": 10**9}, "lower its train"),
        ({"vocabulary": 299}, "vocabulary is 299, fewer than the 300 tokens"),
        ({"tokenizer": "./no-such-tokenizer"}, "tokenizer './no-such-tokenizer' cannot"),
        ({"probe_from": {"path": "./no-such-data"}}, "no-such-data cannot be read: "),
    ],
)
def test_defects_of_a_corpus_are_one_line(web, tokenizer, tmp_path, change, words, capsys):
    assert Workspace(tmp_path, None).attempt(job(config(web, tokenizer, **change))) == 1
    assert words in capsys.readouterr().err.splitlines()[-1]


PIN = {"path": WEB[0], "name": "sample-100BT"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_from": PIN}, f"{WEB[0]} to nothing, and must be a full commit id"),
        ({"train_from": {**PIN, "revision": COMMIT[:12]}}, "0123456789ab, and must be a full"),
        ({"tokenizer": "EleutherAI/gpt-neox-20b"}, "EleutherAI/gpt-neox-20b to nothing"),
    ],
)
def test_what_the_hub_may_change_is_pinned(web, tokenizer, change, words):
    with pytest.raises(ValueError, match=words):
        config(web, tokenizer, **change)
