"""GPTQ in float64, written for the tests: Frantar et al., arXiv 2210.17323, algorithm 1."""

import torch
from llmcompressor.modeling.moe.context import moe_calibration_context
from ptq_dynamics import models

# A value this close (in steps of the grid) to the middle between two codes is a tie: float32 may
# fall to the other side, and all later columns of the row follow. The largest negative weight of a
# group is one exactly, at -3.5 steps for 3 bits. The reference then goes the way that was taken;
# TIES is the largest share of codes where it may.
CLOSE = 1e-3
TIES = 0.005


def grid_steps(weight, bits, group):
    """Step of every weight's grid: half the steps of the grid reach the group's largest weight."""
    parts = weight.reshape(len(weight), -1, group)
    largest = parts.abs().amax(dim=2)
    return (largest * 2 / (2**bits - 1)).repeat_interleave(group, dim=1)


def nearest(value, step, bits):
    return torch.round(value / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def reference_gptq(weight, hessian, bits, group, damping, ordered, taken):
    """Codes of one layer [out, in], columns in descending order of the Hessian's diagonal, and how
    many ties went the way of the codes `taken`."""
    columns = weight.shape[1]
    step = grid_steps(weight, bits, group)
    diagonal = hessian.diagonal()
    order = diagonal.argsort(descending=True) if ordered else torch.arange(columns)
    weight, step, taken = weight[:, order].clone(), step[:, order], taken[:, order]
    hessian = hessian[order][:, order].clone()
    hessian += torch.eye(columns, dtype=torch.float64) * damping * diagonal.mean()
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian)).T
    codes = torch.zeros_like(weight)
    ties = 0
    for i in range(columns):
        code = nearest(weight[:, i], step[:, i], bits)
        gap = (weight[:, i] / step[:, i] - taken[:, i]).abs()
        tie = (code != taken[:, i]) & (gap < 0.5 + CLOSE)
        codes[:, i] = torch.where(tie, taken[:, i], code)
        ties += int(tie.sum())
        error = (weight[:, i] - codes[:, i] * step[:, i]) / upper[i, i]
        weight[:, i:] -= torch.outer(error, upper[i, i:])
    return codes[:, order.argsort()], ties


def block_inputs(model, block, batches):
    """Input of every linear layer of one block, [tokens, in]."""
    found, handles = {name: [] for name in models.linear_layers(model)}, []
    for name, layer in models.linear_layers(model).items():
        if next(part for part in name.split(".") if part.isdigit()) == str(block):
            handles.append(
                layer.register_forward_hook(
                    lambda _m, x, _y, name=name: found[name].append(x[0].flatten(0, -2))
                )
            )
    # llm-compressor shows all text to every expert.
    with torch.no_grad(), moe_calibration_context():
        for batch in batches:
            model(batch, use_cache=False)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(inputs) for name, inputs in found.items() if inputs}


def compare(folder, calibration, weights, bits, group, damping=0.05, ordered=True):
    """Share of codes that differ from the reference, by layer, and the codes found. The reference
    goes block by block, each on the outputs of the quantized blocks before it."""
    model = models.load(folder).double()
    layers = models.linear_layers(model)
    assert weights.keys() == layers.keys()
    differ, found = {}, {}
    for block in range(model.config.num_hidden_layers):
        for name, x in block_inputs(model, block, calibration.batches()).items():
            weight = layers[name].weight.detach()
            step = grid_steps(weight, bits, group)
            exact = weights[name].double() / step
            taken = exact.round()
            assert (exact - taken).abs().max() < 1e-4, f"{name} is off its own grid"
            hessian = 2 * x.T @ x / len(x)
            codes, ties = reference_gptq(weight, hessian, bits, group, damping, ordered, taken)
            assert ties <= TIES * codes.numel(), f"{name}: {ties} ties of {codes.numel()} codes"
            differ[name] = (codes != taken).double().mean().item()
            found[name] = taken * step
        for name, value in found.items():
            layers[name].weight.data = value
    return differ
