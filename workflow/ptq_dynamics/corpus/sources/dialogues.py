"""Dialogues to learn answering from: a function's signature is asked about, the first sentence of
its docstring is the answer.

Like a mix, it has the tokenizer and the held-out splits of an embedded corpus, byte for byte; only
train is its own, and the tokenizer has the chat template, by which dialogues are written.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import functions, splits
from ptq_dynamics.corpus.dialogues import ANSWERS, ENDS, ENDS_DTYPE
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.engine.context import Context

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def _question(text: str) -> str:
    try:
        example = text.format(signature="f(x)")
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"must have {{signature}} and no other braces ({error})") from None
    if "f(x)" not in example:
        raise ValueError("must have {signature} where the function is named")
    return text


class DialoguesCorpus(Derived):
    """Questions about the functions that `of` trains on, each a `question` with {signature} in it,
    and answers, the first sentences of their docstrings, written by a chat `template` (Jinja, as
    transformers takes it)."""

    from_functions: ClassVar[bool] = True

    source: Literal["dialogues"]
    template: Annotated[str, Field(min_length=1)]
    question: Annotated[str, AfterValidator(_question)]

    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Write train's dialogues, which of their tokens are answers, and where they end; copy all
        else of the corpus."""
        from transformers import PreTrainedTokenizerFast

        whole = context.input("corpus")
        splits.copy_held_out(whole, context.out)
        folder = context.out / "tokenizer"
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.chat_template = self.template
        tokenizer.save_pretrained(folder)
        dtype = np.dtype(whole.facts[splits.DTYPE])
        parts, marks, ends = list[np.ndarray](), list[np.ndarray](), list[int]()
        for function in functions.load(context.input("functions"), functions.TRAIN):
            question, answer = self.encode(tokenizer, function)
            parts.append(np.asarray([*question, *answer], dtype=dtype))
            marks.append(np.repeat(np.array([0, 1], np.uint8), [len(question), len(answer)]))
            ends.append(len(parts[-1]) + (ends[-1] if ends else 0))
        count = splits.write(context.out, "train", parts, self.train, whole=True)
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
        self, tokenizer: "PreTrainedTokenizerFast", function: functions.Documented
    ) -> tuple[list[int], list[int]]:
        """Tokens of a dialogue: of all that comes before the answer, and of the answer with its
        end.

        Raises `Problem` where the chat template does not put an answer at the end.
        """
        from jinja2 import TemplateError

        user = {"role": "user", "content": self.question.format(signature=function.signature)}
        answer = {"role": "assistant", "content": function.summary}
        write: Any = tokenizer.apply_chat_template
        mend = "correct it in the scale's file under config/scales"
        try:
            before = write([user], tokenize=False, add_generation_prompt=True)
            both = write([user, answer], tokenize=False)
        except TemplateError as error:
            raise Problem(
                f"template of the dialogues is none for a question and an answer ({error}); {mend}"
            ) from None
        if not both.startswith(before) or both == before:
            raise Problem(
                "template of the dialogues writes an answer that does not follow what "
                f"add_generation_prompt writes before it; {mend}"
            )
        texts = (before, both.removeprefix(before))
        first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        return first, second
