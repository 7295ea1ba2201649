"""The Kullback-Leibler divergence of predictions by quantized weights from those in full precision.

It is zero only if all predictions are equal, while losses may agree by chance."""

from typing import ClassVar, Literal

from ptq_dynamics.measure.metrics import Column, Measured, ModelMetric


class KlDivergence(ModelMetric):
    """KL(p ‖ q) in nats of the next token, p in full precision and q quantized."""

    columns: ClassVar[tuple[Column]] = (
        Column("kl_divergence", "{q} KL divergence", "Divergence (nats/token)", quantized=True),
    )

    metric: Literal["kl_divergence"] = "kl_divergence"

    def measure(self, measured: Measured) -> tuple[float, float | None]:
        """Return the mean over blocks, and its standard error."""
        import torch
        from torch.nn.functional import kl_div

        from ptq_dynamics import models
        from ptq_dynamics.measure.measurements import mean_and_error

        full, parts = models.load(measured.folder, torch.float32), list[torch.Tensor]()
        with torch.no_grad():
            for batch in measured.blocks[:, :-1].split(measured.batch):
                p, q = (
                    model(batch.to(models.inputs_device(model)), use_cache=False)
                    .logits.double()
                    .log_softmax(dim=-1)
                    .cpu()
                    for model in (full, measured.model)
                )
                parts.append(kl_div(q, p, reduction="none", log_target=True).sum(-1).mean(1))
        return mean_and_error(torch.cat(parts).numpy())
