"""The jobs that drop weights when nothing reads them any more, as `keep` of a scale says."""

from collections.abc import Callable, Iterable
from functools import cached_property

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Site
from ptq_dynamics.train.settings import DropSettings

# Rooms whose jobs read facts and small files of a result, not its weights.
LIGHT = ("figures", "measure.collect", "claims", "paper")


class Keeping:
    """What is dropped after its last reader among the jobs that some targets need."""

    def __init__(self, site: Site, targets: Callable[[], Iterable[Job]]) -> None:
        self._site, self._targets = site, targets
        keep = site.config.scale.keep
        # All fetched, averaged and quantized checkpoints are measured ones.
        of = {"train": keep.train != "all"}
        of |= {kind: getattr(keep, kind) == "none" for kind in ("fetch", "average", "quantize")}
        self._dropped = {kind for kind, drops in of.items() if drops}

    def drops(self) -> list[Job]:
        """A job for every result whose weights do not all stay."""
        return [self.drop(result) for result in self._readers] if self._dropped else []

    def drop(self, result: str) -> Job:
        """The job that drops weights of the result in this folder below the scale's results."""
        site, manifest = self._site, str(Paths.at(f"{self._site.results}/{result}").manifest)
        folder = site.place("drop", result=result)
        if result not in self._readers:
            raise Problem(
                f"{folder} drops nothing: no figure that was chosen has such a "
                "result, or keep of the scale leaves it whole"
            )
        kind, name, _ = result.split("/", 2)
        stays = getattr(site.config.scale.keep, kind) == "measured"
        kept = tuple(point.id for point in site.timeline.measured(name)) if stays else ()
        inputs = {"result": [manifest], "readers": sorted(self._all_readers(result))}
        settings = DropSettings(kept=kept, manifest=str(Paths.at(folder).manifest))
        return site.add(Job("train.drop", result, folder, inputs, settings))

    def _all_readers(self, result: str) -> set[str]:
        """Manifests of what reads a result; where that is dropped too, also of what reads that,
        since making it again reads this one again."""
        found = set(self._readers.get(result, []))
        for reader in list(found):
            found |= self._all_readers(self._result(reader))
        return found

    @cached_property
    def _readers(self) -> dict[str, list[str]]:
        """Manifests of the jobs that read weights of a result, by its folder below the scale's
        results, for all that is not kept whole."""
        readers = dict[str, list[str]]()
        for job in self._site.needed(self._targets()):
            if job.stage.startswith(LIGHT):
                continue
            for result in map(self._result, job.needs):
                if result.partition("/")[0] in self._dropped:
                    readers.setdefault(result, []).append(job.manifest)
        return readers

    def _result(self, manifest: str) -> str:
        """Folder of a result below the scale's results, which names it."""
        return manifest.removeprefix(f"{self._site.results}/").rpartition("/")[0]
