"""The one exception whose message is meant for the person at the terminal, in any encoding, and
what says that a disk is full."""

import errno
import os
import sys
from io import TextIOWrapper

# Of a quota, too.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class Problem(Exception):
    """Something a user can mend; one line saying what is wrong, where, and what to do."""


def print_anywhere() -> None:
    """From now on, print a question mark for a character that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def is_full_disk(error: BaseException) -> bool:
    """Whether there was no room for what was to be written."""
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return True
    # Errors of copytree and of safetensors hold the system's error in their text alone.
    signs = [text for n in FULL_DISK for text in (os.strerror(n), f"os error {n})")]
    return any(sign in str(error) for sign in signs)
