"""Signatures of a release by its user's own SSH key (`ssh-keygen -Y`)."""

import subprocess
from pathlib import Path

from ptq_dynamics.base.problem import Problem

# What a signature is for; one made for anything else does not verify.
NAMESPACE = "ptq-dynamics-release"


def statement(scale: str, root: str) -> bytes:
    """What is signed: the scale and the Merkle root of its release."""
    return f"ptq-dynamics {scale} {root}\n".encode()


def sign(text: bytes, key: Path, signature: Path) -> None:
    """Write an SSH signature of a text; `Problem` where ssh-keygen cannot."""
    done = _ssh("sign", "-f", str(key), text=text)
    signature.write_bytes(done)


def verify(text: bytes, signature: Path, signers: Path, signer: str) -> None:
    """Raise `Problem` unless a signature of the text is by this one of the allowed signers."""
    if not signature.is_file():
        raise Problem(f"{signature} is missing; audit --sign KEY writes it")
    options = ("-f", str(signers), "-I", signer, "-s", str(signature))
    _ssh("verify", *options, text=text)


def _ssh(action: str, *options: str, text: bytes) -> bytes:
    command = ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *options]
    try:
        done = subprocess.run(command, input=text, capture_output=True, check=False)
    except FileNotFoundError:
        raise Problem("ssh-keygen is not installed; it comes with OpenSSH") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise Problem(f"ssh-keygen could not {action}: {said[-1] if said else 'it said nothing'}")
    return done.stdout
