"""The embedded corpus: text that every installation has, as token files.

Documents are the docstrings (and, where a scale asks for it, the source files) of pinned, purely
Python distributions, read from the files that their wheels installed and checked against the
wheels' own digests; so the corpus depends on the versions of those distributions alone, not on the
machine or the Python version. Documents are deduplicated, ordered by digest, and dealt to the
splits validation, calibration and probe until each has enough; train has the rest. A byte-level BPE
is trained on the train documents.
"""

import ast
import base64
import hashlib
import importlib.metadata
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.settings import HELD_OUT, SPLITS, EmbeddedSettings, Split
from ptq_dynamics.jobs import processes
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.problem import Problem

END = "<|endoftext|>"


def run(context: Context[EmbeddedSettings]) -> Mapping[str, Any]:
    """Write tokenizer/ and one token file a split; facts: sizes and digests."""
    settings, sizes = context.settings, context.settings.sizes
    documents = collect(settings.packages, settings.source_code, settings.shortest_document)
    characters = sum(map(len, documents))
    context.progress.say(f"{len(documents):,} documents, {characters:,} characters")
    factor = settings.characters_per_token
    dealt = deal(documents, {name: sizes[name] * factor for name in HELD_OUT})
    tokenizer = train_tokenizer(dealt["train"], settings.vocabulary)
    save_tokenizer(tokenizer, context.out / "tokenizer")
    dtype = splits.dtype(settings.vocabulary)
    counts = {}
    for name in SPLITS:
        train = name == "train"
        encoded = encode(tokenizer, dealt[name], dtype, end=train)
        counts[name] = splits.write(context.out, name, encoded, sizes[name], whole=train)
    return {
        "documents": len(documents),
        "characters": sum(map(len, documents)),
        "tokens": counts,
        splits.DTYPE: dtype.name,
        "packages": {name: importlib.metadata.version(name) for name in settings.packages},
        "digest": splits.digest(context.out),
    }


def collect(packages: Sequence[str], source_code: bool, shortest: int) -> list[str]:
    """Distinct documents of at least `shortest` characters, ordered by their sha256."""
    files = [file for package in packages for file in installed_files(package)]
    # Largest first, so that no worker ends with a long one; the order of documents is set below.
    files.sort(key=lambda item: -item.stat().st_size)
    workers = max(1, int(os.environ.get("OMP_NUM_THREADS", 1)))
    read = _documents_with_source if source_code else _docstrings
    if workers == 1:
        found = [read(file) for file in files]
    else:
        context = get_context("fork")
        with ProcessPoolExecutor(workers, context, processes.end_with_parent) as pool:
            found = list(pool.map(read, files, chunksize=16))
    distinct = {text for texts in found for text in texts if len(text) >= shortest}
    return sorted(distinct, key=lambda text: hashlib.sha256(text.encode()).digest())


def installed_files(package: str) -> list[Path]:
    """The Python files of a distribution, each still as its wheel brought it.

    Raises `Problem` for a distribution that is absent, has compiled parts (its files may differ
    between machines), or was altered after its installation.
    """
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        raise Problem(
            f"packages of the corpus names {package!r}, which is not installed; install it or "
            "remove it from the scale's file under config/scales"
        ) from None
    if "-none-any" not in (distribution.read_text("WHEEL") or ""):
        raise Problem(f"packages of the corpus names {package!r}, which is not a pure-Python wheel")
    paths = []
    for file in distribution.files or []:
        if file.suffix != ".py" or file.hash is None:
            continue
        path = Path(str(file.locate()))
        digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
            raise Problem(f"{path.name} of {package} was altered; reinstall {package}")
        paths.append(path)
    return paths


def _docstrings(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        # A file that one Python version reads and another does not would change the corpus, so a
        # syntax error is not passed over.
        tree = ast.parse(text, filename=path.name)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    raw = [ast.get_docstring(node, clean=False) for node in nodes]
    return [dedent(text) for text in raw if text]


def _documents_with_source(path: Path) -> list[str]:
    return [*_docstrings(path), path.read_text(encoding="utf-8")]


def dedent(docstring: str) -> str:
    """A docstring without the indentation of the code around it.

    Like inspect.cleandoc, which is not used because it differs between Python versions.
    """
    lines = docstring.expandtabs().split("\n")
    margins = [len(line) - len(line.lstrip(" ")) for line in lines[1:] if line.strip(" ")]
    margin = min(margins, default=0)
    return "\n".join([lines[0].lstrip(" "), *(line[margin:] for line in lines[1:])]).strip("\n ")


def deal(documents: Sequence[str], characters: Mapping[Split, float]) -> dict[Split, list[str]]:
    """Whole documents to each held-out split in turn until it has its characters, the rest to
    train."""
    dealt: dict[Split, list[str]] = {name: [] for name in SPLITS}
    counts = dict.fromkeys(SPLITS, 0)
    for text in documents:
        short = (name for name in HELD_OUT if counts[name] < characters[name])
        name: Split = next(short, "train")
        dealt[name].append(text)
        counts[name] += len(text)
    return dealt


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE with `vocabulary` entries, the end-of-document token first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def encode(
    tokenizer: Tokenizer, documents: Sequence[str], dtype: np.dtype, end: bool
) -> Iterator[np.ndarray]:
    """Tokens of each document, `dtype` [n]; with `end`, the end-of-document token after each.

    Held-out text has no special tokens (section 2).
    """
    last = [tokenizer.token_to_id(END)] if end else []
    for start in range(0, len(documents), 1000):
        batch = tokenizer.encode_batch(documents[start : start + 1000], add_special_tokens=False)
        for encoding in batch:
            yield np.asarray(encoding.ids + last, dtype=dtype)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer as any Hugging Face tool reads it."""
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)
    fast.save_pretrained(folder)
