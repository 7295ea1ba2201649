"""What a scale does not keep (`keep` in its file): weights that nothing reads any more.

After a build, the files go of every result whose readers are up to date; manifest and record stay.
A job that needs dropped weights later makes them again.
"""

from collections.abc import Iterable, Mapping

from ptq_dynamics.engine import freshness
from ptq_dynamics.engine.manifest import read
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Site

# Rooms whose jobs read facts and small files of a result, not its weights.
LIGHT = ("figures", "measure.collect", "claims", "paper", "report")


def drop(site: Site, targets: Iterable[Job]) -> list[str]:
    """Drop weights that no job among the targets and all they need reads any more; the folders of
    the results concerned."""
    found = list[str]()
    for folder, readers in _readers(site, targets).items():
        job = next(each for each in site.made.values() if each.folder == folder)
        # What reads a dropped reader's weights again reads this one again.
        if job.paths.manifest.exists() and not any(_is_stale(reader) for reader in readers):
            result = read(job.paths.manifest)
            kept = _kept(site, folder)
            names = {name for name in result.files if _is_weight(name, kept)} - result.dropped()
            if names:
                result.drop(names)
                found.append(folder)
    return found


def _readers(site: Site, targets: Iterable[Job]) -> Mapping[str, list[Job]]:
    """The jobs that read weights of a result, by its folder, for all that is not kept whole."""
    readers = dict[str, list[Job]]()
    for job in site.needed(targets):
        if not job.stage.startswith(LIGHT):
            for folder in {site.made[path].folder for path in job.needs}:
                kind = folder.removeprefix(f"{site.results}/").partition("/")[0]
                if getattr(site.config.scale.keep, kind, "all") != "all":
                    readers.setdefault(folder, []).append(job)
    return readers


def _is_stale(job: Job) -> bool:
    return bool(freshness.stale(job.spec, job.paths))


def _kept(site: Site, folder: str) -> set[str]:
    """Ids of the checkpoints that stay."""
    kind, name, _ = folder.removeprefix(f"{site.results}/").split("/", 2)
    stays = getattr(site.config.scale.keep, kind) == "measured"
    return {point.id for point in site.timeline.measured(name)} if stays else set()


def _is_weight(name: str, kept: set[str]) -> bool:
    """Whether a file is a checkpoint's weights, or the state of a run, and does not stay."""
    return name.endswith(".safetensors") and name.split("/")[0] not in kept
