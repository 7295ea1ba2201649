"""The exception with a message for the user, and the errors of a full disk."""

import errno
import os

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)  # the disk or the user's quota


class Problem(Exception):
    """An error that a user can correct; one line with what is wrong, where, and what to do."""


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error came from a full disk."""
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return True
    # Errors of copytree and safetensors contain the system's error only as text.
    signs = [text for n in FULL_DISK for text in (os.strerror(n), f"os error {n})")]
    return any(sign in str(error) for sign in signs)
