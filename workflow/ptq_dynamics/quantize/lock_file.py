"""What a lock file says: its requirements, and variables for the installation."""

import hashlib

OPTION = "# pip-env:"


def options(text: str) -> dict[str, str]:
    """Variables for the installation: the comments `pip-env: NAME=VALUE`."""
    lines = [line.strip() for line in text.splitlines()]
    found = [line.removeprefix(OPTION).strip() for line in lines if line.startswith(OPTION)]
    return dict(line.split("=", 1) for line in found)


def digest(text: str) -> str:
    """Hex sha256 of what is installed, whatever other comments say."""
    # As pip has it, a comment begins a line or follows a space.
    bare = [f" {line}".split(" #", 1)[0].strip() for line in text.splitlines()]
    variables = [f"{name}={value}" for name, value in sorted(options(text).items())]
    return hashlib.sha256("\n".join([*filter(None, bare), "", *variables]).encode()).hexdigest()
