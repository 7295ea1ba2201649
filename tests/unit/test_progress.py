"""What jobs that run side by side print on the stream that they share."""

import os
import sys

from ptq_dynamics.engine import execute
from ptq_dynamics.engine.context import Progress


def test_a_line_is_written_in_one_piece(monkeypatch):
    # A read from such a pipe gives what was written at once. Python's own stderr keeps nothing.
    reader, writer = os.pipe2(os.O_DIRECT)
    with open(reader, "rb", buffering=0) as pipe, open(writer, "wb", buffering=0) as end:
        stream = type(sys.__stderr__)(end, write_through=True)
        monkeypatch.setattr(sys, "stderr", stream)
        Progress("train run").say("done in 1.0 s")
        assert pipe.read(100) == b"train run: done in 1.0 s\n"
        execute._complain("the disk is\nfull")
        assert pipe.read(100) == b"error: the disk is full\n"
