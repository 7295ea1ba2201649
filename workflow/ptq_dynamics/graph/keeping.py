"""What a scale does not keep (`keep` in its file): weights that nothing reads any more.

After a build, the files go of every result whose readers are up to date; manifest and record stay.
A job that needs dropped weights later makes them again.
"""

from collections.abc import Iterable

from ptq_dynamics.engine import freshness
from ptq_dynamics.engine.manifest import read
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Site

# Rooms whose jobs read facts and small files of a result, not its weights.
LIGHT = ("figures", "measure.collect", "claims", "paper", "report")


def drop(site: Site, targets: Iterable[Job]) -> list[str]:
    """Drop weights that no job among the targets and all they need reads any more; the folders of
    the results concerned."""
    keep, found, readers = site.config.scale.keep, list[str](), dict[str, list[Job]]()
    for job in site.needed(targets):
        for path in () if job.stage.startswith(LIGHT) else dict.fromkeys(job.needs):
            if getattr(keep, site.kind(site.made[path]), "all") != "all":
                readers.setdefault(path, []).append(job)
    for path, jobs in readers.items():
        job = site.made[path]
        # What reads a dropped reader's weights again reads this one again.
        if job.paths.manifest.exists() and not any(
            freshness.stale(each.spec, each.paths) for each in jobs
        ):
            kind, name, _ = job.folder.removeprefix(f"{site.results}/").split("/", 2)
            stays = getattr(keep, kind) == "measured"
            kept = {point.id for point in site.timeline.measured(name)} if stays else set[str]()
            result = read(job.paths.manifest)
            # Weights of checkpoints, and the states of a run.
            weights = [each for each in result.files if each.endswith(".safetensors")]
            names = {each for each in weights if each.split("/")[0] not in kept} - result.dropped()
            if names:
                result.drop(names)
                found.append(job.folder)
    return found
