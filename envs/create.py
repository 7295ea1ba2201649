"""Create the environment of this checkout, by the Python that it will have: create.py FOLDER."""

import os
import shutil
import sys
import venv

OLDEST = (3, 11)
BROKEN = '"`$\\{}:'  # characters with which pip writes broken programs
LEAST = 50  # MB; a full disk truncates compiled code, which Python does not repair


def main() -> None:
    """Create it, or say in one line why it would not work. Python 3.6 can run this."""
    here = os.getcwd()
    if sys.version_info < OLDEST:
        sys.exit(f"error: {sys.executable} is older than 3.11; set PYTHON=python3.x")
    if set(BROKEN) & set(here):
        these = " ".join(BROKEN)
        sys.exit(
            f"error: pip cannot install into a folder with one of {these} in its path; move {here}"
        )
    if shutil.disk_usage(here).free < LEAST * 10**6:
        sys.exit(
            f"error: less than {LEAST} MB are left on the disk of this folder; free some space"
        )
    try:
        venv.create(sys.argv[1], with_pip=True, symlinks=True)
    except BaseException:
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        raise


if __name__ == "__main__":
    main()
