"""The verbs of `ptq-dynamics` about the configuration."""

import json
import sys
from typing import Annotated

from typer import Option

from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.options import Scale


def config(
    scale: Scale = None,
    help_keys: Annotated[
        str | None, Option(metavar="FILE", help="print keys, as JSON schema: runs, ...")
    ] = None,
) -> bool:
    """Print the resolved configuration of a scale.

    Example: ptq-dynamics config --help-keys runs"""
    import yaml

    from ptq_dynamics.config import schema
    from ptq_dynamics.plan.catalogue import resolve

    if help_keys:
        print(json.dumps(schema(help_keys), indent=1, ensure_ascii=False))
        return True
    at_scale = resolve(chosen.load(scale=scale)).config
    content = at_scale.model_dump(mode="json", serialize_as_any=True)
    yaml.safe_dump(content, sys.stdout, sort_keys=False, allow_unicode=True)
    return True


def lock() -> bool:
    """Pin the revisions of public models to commits on the Hugging Face hub.

    Example: ptq-dynamics lock"""
    from ptq_dynamics.hub import lock as hub
    from ptq_dynamics.plan.catalogue import resolve
    from ptq_dynamics.plan.releases import to_lock

    paper = resolve(chosen.load(scale="paper"))
    resolved, failed = hub.lock(to_lock(paper.public.values(), paper.config.scale))
    print(f"{resolved} revisions are locked in {hub.LOCK}", *failed, sep="\nerror: ")
    return not failed
