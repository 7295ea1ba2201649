"""Lion (arXiv 2302.06675), from bitsandbytes."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.train.optimizers import Forgetting, Optimizer

if TYPE_CHECKING:
    from bitsandbytes.optim import Lion32bit
    from transformers import PreTrainedModel


class Lion(Optimizer):
    """Steps in the direction of signs of a mean of gradients, with decoupled weight decay."""

    kind: Literal["lion"]
    betas: tuple[Forgetting, Forgetting]

    def make(self, model: "PreTrainedModel", budget: int) -> "Lion32bit":
        """Return the optimizer of bitsandbytes, without its nested form of states."""
        from bitsandbytes.optim import Lion32bit
        from torch.optim import Optimizer as Plain

        class Flat(Lion32bit):
            state_dict = Plain.state_dict
            load_state_dict = Plain.load_state_dict  # type: ignore[assignment]

        return Flat(self.groups(model), lr=0.0, betas=self.betas)
