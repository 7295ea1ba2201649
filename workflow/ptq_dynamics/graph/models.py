"""The models of trajectories, as far as their size counts."""

from dataclasses import dataclass
from functools import cache

from ptq_dynamics.config import Config
from ptq_dynamics.train.timeline import Timeline

# Bytes of a parameter, as a checkpoint's files have them.
BYTES = {"bfloat16": 2, "float32": 4}
FLOAT32 = BYTES["float32"]
AUTO = "auto"


@dataclass(frozen=True)
class Model:
    """How many parameters a model has, and how many of them in embedding and head; its vocabulary,
    width and layers; bytes of a parameter in the files of a checkpoint; how it is spread where it
    fits on no device."""

    parameters: int
    embedding: int
    vocabulary: int
    width: int
    layers: int
    stored: int
    device_map: str

    @property
    def size(self) -> int:
        """Bytes of a checkpoint's weights."""
        return self.parameters * self.stored

    def packed(self, bits: int) -> float:
        """Bytes of a checkpoint whose layers are quantized."""
        layers = self.parameters - self.embedding
        return self.embedding * self.stored + layers * bits / 8


class Models:
    """The models of a scale's trajectories."""

    def __init__(self, config: Config) -> None:
        self._config, self._timeline = config, Timeline(config)

    @cache
    def of(self, trajectory: str) -> Model:
        """The model of a trajectory."""
        kind = self._timeline.trajectory(trajectory)
        trained = kind.model_shape(self._timeline)
        shape, vocabulary = trained.model, self._config.scale.whole(trained.corpus).vocabulary
        count = shape.parameters(vocabulary)
        public = self._config.runs.public.get(kind.run(trajectory, self._timeline))
        return Model(
            parameters=count,
            embedding=count - shape.parameters(0),
            vocabulary=vocabulary,
            width=shape.width,
            layers=shape.layers,
            stored=BYTES[public.dtype] if public else FLOAT32,
            device_map=public.device_map if public else AUTO,
        )
