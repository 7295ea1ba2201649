"""Dialogues: a question about a function's signature, and the first sentence of its docstring."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import functions, splits
from ptq_dynamics.corpus.packages import Documented
from ptq_dynamics.corpus.sources import Batches, Derived
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class DialoguesCorpus(Derived):
    """Dialogues about functions in train of `of`; `template` is a chat template of transformers."""

    from_functions: ClassVar[bool] = True

    source: Literal["dialogues"]
    template: Annotated[str, Field(min_length=1)]
    question: Annotated[str, Field(pattern=r"\{signature\}")]

    def documents(self, context: Context[object], dtype: np.dtype) -> tuple[Batches, Facts]:
        """Return the dialogues; write the marks of their answers, and where dialogues end."""
        from transformers import PreTrainedTokenizerFast

        folder = context.out / "tokenizer"
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.chat_template = self.template
        tokenizer.save_pretrained(folder)
        parts, marks = list[np.ndarray](), bytearray()
        for function in functions.read_part(context.input(needs.FUNCTIONS), functions.TRAIN):
            question, answer = self.encode(tokenizer, function)
            parts.append(np.asarray([*question, *answer], dtype=dtype))
            marks += bytes(len(question)) + b"\1" * len(answer)
        (context.out / splits.ANSWERS).write_bytes(marks)
        ends = np.cumsum([len(part) for part in parts], dtype=splits.ENDS_DTYPE)
        ends.tofile(context.out / splits.DIALOGUE_ENDS)
        known = context.input(needs.CORPUS).facts["packages"]
        return [parts], {"dialogues": len(parts), "packages": known}

    def encode(
        self, tokenizer: "PreTrainedTokenizerFast", function: Documented
    ) -> tuple[list[int], list[int]]:
        """Return the tokens before the answer, and of the answer with its end."""
        question = self.question.replace("{signature}", str(function.signature))
        user = {"role": "user", "content": question}
        answer = {"role": "assistant", "content": str(function.summary)}
        write = tokenizer.apply_chat_template
        before = str(write([user], tokenize=False, add_generation_prompt=True))
        both = str(write([user, answer], tokenize=False))
        if not both.startswith(before) or both == before:
            raise Problem(
                "template of the dialogues: the answer does not follow what add_generation_prompt "
                "writes; correct it in the scale's file under config/scales"
            )
        texts = (before, both.removeprefix(before))
        first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        return first, second
