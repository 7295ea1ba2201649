"""The one exception whose message is meant for the person at the terminal, and what says that a
disk is full."""

import errno
import os

# Of a quota, too.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class Problem(Exception):
    """Something a user can mend; one line saying what is wrong, where, and what to do."""


def is_full_disk(error: BaseException) -> bool:
    """Whether there was no room for what was to be written."""
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return True
    # Errors of copytree and of safetensors hold the system's error in their text alone.
    signs = [text for n in FULL_DISK for text in (os.strerror(n), f"os error {n})")]
    return any(sign in str(error) for sign in signs)
