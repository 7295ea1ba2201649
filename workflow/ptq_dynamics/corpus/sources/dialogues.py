"""Dialogues to learn answering from: a function's signature is asked about, the first sentence of
its docstring is the answer. The tokenizer has the chat template by which they are written."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import functions, splits
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.engine.context import Context

# 1 for every token of train that belongs to an answer, else 0: uint8 [n].
ANSWERS = "train.answers.bin"
# Where the dialogues of train end, in tokens from its beginning: uint64 [dialogues].
ENDS = "train.ends.bin"


class DialoguesCorpus(Derived):
    """Questions about the functions that `of` trains on, each a `question` with {signature} in it,
    and answers, the first sentences of their docstrings, written by a chat `template` (Jinja, as
    transformers takes it)."""

    from_functions: ClassVar[bool] = True

    source: Literal["dialogues"]
    template: Annotated[str, Field(min_length=1)]
    question: Annotated[str, Field(pattern=r"\{signature\}")]

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
        parts, marks = list[np.ndarray](), list[np.ndarray]()
        for function in functions.load(context.input("functions"), functions.TRAIN):
            question, answer = self.encode(tokenizer, function)
            parts.append(np.asarray([*question, *answer], dtype=dtype))
            marks.append(np.repeat(np.array([0, 1], np.uint8), [len(question), len(answer)]))
        count = splits.write(context.out, "train", [parts], self.train, whole=True)
        np.concatenate(marks).tofile(context.out / ANSWERS)
        np.cumsum([len(part) for part in parts], dtype=splits.ENDS_DTYPE).tofile(context.out / ENDS)
        counts = {**whole.facts["tokens"], "train": count}
        about = {"dialogues": len(parts), "packages": whole.facts["packages"]}
        return {**about, **splits.facts(context.out, dtype, counts)}

    def encode(self, tokenizer: Any, function: functions.Documented) -> tuple[list[int], list[int]]:
        """Tokens of a dialogue: of all before the answer, and of the answer with its end."""
        from jinja2 import TemplateError

        question = self.question.replace("{signature}", str(function.signature))
        user = {"role": "user", "content": question}
        answer = {"role": "assistant", "content": function.summary}
        write = tokenizer.apply_chat_template
        try:
            before = write([user], tokenize=False, add_generation_prompt=True)
            both = write([user, answer], tokenize=False)
            if not both.startswith(before) or both == before:
                raise TemplateError("the answer does not follow what add_generation_prompt writes")
        except TemplateError as error:
            raise Problem(
                f"template of the dialogues is none for a question and an answer ({error}); "
                "correct it in the scale's file under config/scales"
            ) from None
        texts = (before, both.removeprefix(before))
        first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        return first, second
