"""What the jobs of a rule ask of a machine. It stands outside their specification: no result
depends on it."""

from math import ceil

from ptq_dynamics.graph.site import Planner

# Rules whose jobs compute with as many threads as the scale says; others take one.
COMPUTING = frozenset({"train", "average", "measure", "curvature", "landscape", "components"})
BILLION = 10**9


class Resources(Planner):
    """Resource requests of the jobs of a scale."""

    def ask(
        self, rule: str, attempt: int = 1, trajectory: str | None = None
    ) -> dict[str, int | str]:
        """Resources as Snakemake names them: `mem_mb` and `runtime` (minutes), which grow with the
        number of the attempt; `gpu` and `gpu_model` where the rule takes any. Where the job is
        about a trajectory, the size of its model counts."""
        table = self.scale.resources
        asked = table.rules.get(rule, table.default)
        more, billions = asked.per_billion, 0.0
        if trajectory is not None:
            billions = self.parameters(trajectory) / BILLION
        found: dict[str, int | str] = {
            "mem_mb": ceil(attempt * (asked.memory + billions * more.memory)),
            "runtime": max(1, ceil(attempt * (asked.minutes + billions * more.minutes))),
        }
        if gpus := ceil(asked.gpus + billions * more.gpus):
            found |= {"gpu": gpus, **({"gpu_model": table.gpu_model} if table.gpu_model else {})}
        return found

    def threads(self, rule: str) -> int:
        """Threads of a rule's jobs."""
        return self.scale.threads if rule in COMPUTING else 1
