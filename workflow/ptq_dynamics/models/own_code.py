"""Code that comes with a checkpoint, for families whose entry trusts it (`code`)."""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.models.packed import CONFIG

# Beside such code: the commit that it is of, and its digests. Only fetching writes it.
TRUSTED = "trusted_code.json"


# Digests of the notes beside code that was taken; checkpoints of one family have one code.
_known: set[str] = set()


def know(folder: Path) -> None:
    """Let transformers use the classes that a checkpoint's own code has, where the code is trusted:
    where it lies beside a file that fetching it has written.

    Raises `Problem` when the configuration names no classes there.
    """
    marker = folder / TRUSTED
    if not marker.is_file() or (digest := sha256(marker)) in _known:
        return
    about = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    finder = _Finder(f"trusted_{digest}", folder)
    compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.meta_path.append(finder)
    try:
        config, model = (
            _own_class(digest, about, kind) for kind in ("AutoConfig", "AutoModelForCausalLM")
        )
        AutoConfig.register(about["model_type"], config, exist_ok=True)
        AutoModelForCausalLM.register(config, model, exist_ok=True)
    except Exception as error:
        sys.meta_path.remove(finder)
        raise Problem(
            f"{folder} comes with code that cannot be used "
            f"({type(error).__name__}: {' '.join(str(error).split())}); see code of its family"
        ) from error
    finally:
        sys.dont_write_bytecode = compiles
    _known.add(digest)


class _Finder(MetaPathFinder):
    """Finds the modules in a folder as those of a package, which has no module of its own."""

    def __init__(self, package: str, folder: Path) -> None:
        self._package, self._folder = package, folder

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Of the package alone; its modules are found by it."""
        if fullname != self._package:
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(self._folder)]
        return spec


def _own_class(digest: str, about: Mapping[str, Any], kind: str) -> Any:
    # Of a repository, perhaps, whose code at the trusted commit lies here.
    _, _, named = about["auto_map"][kind].rpartition("--")
    module, _, name = named.rpartition(".")
    if not module.isidentifier():
        raise ValueError(f"auto_map has {named}, which is no module beside it")
    return getattr(import_module(f"trusted_{digest}.{module}"), name)


def fill_buffers(model: PreTrainedModel, folder: Path) -> None:
    """Give buffers that are in no file their values.

    transformers makes a model without memory and knows which such buffers its own classes have;
    those of other classes would hold whatever was in the memory that they are given.
    """
    if not (folder / TRUSTED).is_file():
        return
    fresh = dict(type(model)(model.config).named_modules())
    for path, module in model.named_modules():
        for name in module._non_persistent_buffers_set:
            buffer, value = module.get_buffer(name), fresh[path].get_buffer(name)
            device = value.device if buffer.is_meta else buffer.device
            module._buffers[name] = value.to(device, buffer.dtype)
