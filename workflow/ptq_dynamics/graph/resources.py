"""What jobs ask of a machine, by rule. No result depends on it."""

from typing import Any

from ptq_dynamics.config import Config


class Resources:
    """Resource requests of the rules of a scale."""

    def __init__(self, config: Config) -> None:
        self._scale = config.scale

    def threads(self, rule: str) -> int:
        """Threads of a rule's jobs."""
        return self._scale.threads

    def ask(self, rule: str, attempt: int = 1) -> dict[str, Any]:
        """Memory in MB and time in minutes; both grow with every attempt."""
        return {}
