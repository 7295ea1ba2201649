"""A corpus from public data sets with a public tokenizer (section 4): what scale paper uses.

Every split names a data set as `datasets.load_dataset` reads it (a hub repository, or a folder of
Parquet or JSON files), streamed in its own order. Validation and probe may come from one data set:
`skip` then keeps them apart.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from datasets import load_dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ptq_dynamics.corpus import splits, tokens
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.problem import Problem

BATCH = 256  # documents tokenized at once


def run(context: Context) -> Mapping[str, Any]:
    """Write tokenizer/ and one token file a split; facts: sizes and digests."""
    config = context.settings
    try:
        tokenizer = AutoTokenizer.from_pretrained(config["tokenizer"])
    except OSError as error:
        raise Problem(
            f"tokenizer {config['tokenizer']!r} cannot be loaded: "
            f"{str(error).splitlines()[0]}; fetch it where there is a network, or change the scale"
        ) from error
    # Not its length: identifiers may have holes.
    needed = max(tokenizer.get_vocab().values()) + 1
    if needed > config["vocabulary"]:
        raise Problem(
            f"vocabulary is {config['vocabulary']}, fewer than the {needed} tokens "
            f"of {config['tokenizer']}"
        )
    dtype = tokens.dtype(config["vocabulary"])
    tokenizer.save_pretrained(context.out / "tokenizer")
    counts = {}
    for name in splits.SPLITS:
        context.progress.say(f"{name}: {config[name]:,} tokens")
        end = [tokenizer.eos_token_id] if name == "train" else []
        documents = encode(tokenizer, texts(config[f"{name}_from"]), dtype, end)
        counts[name] = splits.write(context.out, name, documents, config[name], whole=False)
    return {"tokens": counts, tokens.DTYPE: dtype.name, "digest": splits.digest(context.out)}


def texts(source: Mapping[str, Any]) -> Iterator[str]:
    """The documents of a data set, in its order, without the first `skip`."""
    names = ("path", "name", "data_files", "split", "revision")
    try:
        rows = load_dataset(**{name: source[name] for name in names}, streaming=True)
        for row in islice(rows, source["skip"], None):
            yield row[source["field"]]
    except KeyError as missing:
        raise Problem(f"data set {source['path']} has no field {missing}; set field") from None
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise Problem(f"data set {source['path']} cannot be read: {reason}") from error


def encode(
    tokenizer: PreTrainedTokenizerBase, documents: Iterator[str], dtype: np.dtype, end: list[int]
) -> Iterator[np.ndarray]:
    """Tokens of each document, `dtype` [n], without special tokens but the given `end`."""
    while batch := list(islice(documents, BATCH)):
        for ids in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
            yield np.asarray(ids + end, dtype=dtype)
