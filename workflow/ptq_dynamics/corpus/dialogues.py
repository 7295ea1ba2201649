"""Dialogues to learn answering from: a function's signature is asked about, the first sentence of
its docstring is the answer.

Like a mix, it has the tokenizer and the held-out splits of an embedded corpus, byte for byte; only
train is its own, and the tokenizer has the chat template, by which dialogues are written.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import functions, splits
from ptq_dynamics.corpus.settings import DialoguesSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest

# 1 for every token of train that belongs to an answer, else 0: uint8 [n].
ANSWERS = "train.answers.bin"
# Where the dialogues of train end, in tokens from its beginning: uint64 [dialogues].
ENDS = "train.ends.bin"
ENDS_DTYPE = np.dtype("<u8")


def run(context: Context[DialoguesSettings]) -> Mapping[str, Any]:
    """Write train's dialogues, which of their tokens are answers, and where they end; copy all else
    of the corpus; facts: sizes and digests."""
    settings, whole = context.settings, context.input("corpus")
    splits.copy_held_out(whole, context.out)
    folder = context.out / "tokenizer"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.chat_template = settings.template
    tokenizer.save_pretrained(folder)
    dtype = np.dtype(whole.facts[splits.DTYPE])
    known = functions.load(context.input("functions"), functions.TRAIN)
    parts, marks, ends = list[np.ndarray](), list[np.ndarray](), list[int]()
    for function in known:
        question, answer = encode(tokenizer, function, settings.question)
        parts.append(np.asarray([*question, *answer], dtype=dtype))
        marks.append(np.repeat(np.array([0, 1], np.uint8), [len(question), len(answer)]))
        ends.append(len(parts[-1]) + (ends[-1] if ends else 0))
    count = splits.write(context.out, "train", parts, settings.train, whole=True)
    np.concatenate(marks).tofile(context.out / ANSWERS)
    np.asarray(ends, dtype=ENDS_DTYPE).tofile(context.out / ENDS)
    context.progress.say(f"{len(ends):,} dialogues, {count:,} tokens")
    return {
        "dialogues": len(ends),
        "tokens": {**whole.facts["tokens"], "train": count},
        splits.DTYPE: dtype.name,
        "packages": whole.facts["packages"],
        "digest": splits.digest(context.out),
    }


def encode(
    tokenizer: PreTrainedTokenizerFast, function: functions.Documented, question: str
) -> tuple[list[int], list[int]]:
    """Tokens of a dialogue: of all that comes before the answer, and of the answer with its end.

    Raises `Problem` where the chat template does not put an answer at the end.
    """
    asked = {"role": "user", "content": question.format(signature=function.signature)}
    answer = {"role": "assistant", "content": function.summary}
    write: Any = tokenizer.apply_chat_template
    try:
        before = write([asked], tokenize=False, add_generation_prompt=True)
        both = write([asked, answer], tokenize=False)
    except TemplateError as error:
        raise Problem(
            f"template of the dialogues is none for a question and an answer ({error}); correct it "
            "in the scale's file under config/scales"
        ) from None
    if not both.startswith(before) or both == before:
        raise Problem(
            "template of the dialogues writes an answer that does not follow what add_generation_"
            "prompt writes before it; correct it in the scale's file under config/scales"
        )
    texts = (before, both.removeprefix(before))
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
    return first, second


def answers(corpus: Manifest) -> np.ndarray:
    """Which tokens of train are answers, memory-mapped uint8 [n].

    Raises `Problem` where the corpus has none.
    """
    _require(corpus)
    return np.memmap(corpus.file(ANSWERS), dtype=np.uint8, mode="r")


class Dialogues:
    """The dialogues of train, one by one."""

    def __init__(self, corpus: Manifest) -> None:
        _require(corpus)
        stored = np.dtype(corpus.facts[splits.DTYPE]).newbyteorder("<")
        path = corpus.file(splits.file_name("train"))
        self._tokens = np.memmap(path, dtype=stored, mode="r")
        ends = np.fromfile(corpus.file(ENDS), dtype=ENDS_DTYPE).astype(np.int64)
        self._starts = np.concatenate([[0], ends[:-1]])
        # Every dialogue is a question, then an answer.
        marks = answers(corpus)
        turns = np.flatnonzero(np.diff(marks.astype(np.int8)) == 1) + 1
        self._turns, self._ends = turns, ends

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every dialogue, int64 [dialogues]."""
        lengths: np.ndarray = self._ends - self._starts
        return lengths

    @property
    def longest(self) -> int:
        """Tokens of the longest question with the longest answer."""
        return int((self._turns - self._starts).max() + (self._ends - self._turns).max())

    def question(self, number: int) -> np.ndarray:
        """Tokens of all that comes before the answer, [n]."""
        return self._tokens[self._starts[number] : self._turns[number]]

    def answer(self, number: int) -> np.ndarray:
        """Tokens of the answer with its end, [n]."""
        return self._tokens[self._turns[number] : self._ends[number]]


def _require(corpus: Manifest) -> None:
    if ANSWERS not in corpus.files:
        raise Problem(
            f"{corpus.path} has no dialogues to learn answers from; name a corpus of source "
            "dialogues in config/families.yaml"
        )
