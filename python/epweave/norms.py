"""Norms as calls that the op table has, so that they are divided, proved, priced and executed as these are.

torch's own decomposition of group norm ends in `as_strided` of the whole result, of which a part of the tokens has no such
view. That of batch norm's backward divides by the number of all rows, also where the means are given and nothing takes that.
torch's instance norm is a batch norm of one row that has all images' channels.
"""
from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any


def _group_norm(x, weight, bias, rows: int, channels: int, spatial: int, groups: int, eps: float):
    """The result, and for each group its mean and the reciprocal of its deviation, as aten.native_group_norm gives them."""
    import torch
    wide = torch.promote_types(x.dtype, torch.float32)
    grouped = x.reshape(rows, groups, channels // groups * spatial).to(wide)
    var, mean = torch.var_mean(grouped, dim=[2], correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    result = ((grouped - mean) * rstd).reshape(x.shape)
    by_channel = [channels] + [1] * (x.dim() - 2)
    if weight is not None:
        result = result * weight.reshape(by_channel)
    if bias is not None:
        result = result + bias.reshape(by_channel)
    return result.to(x.dtype), mean.reshape(rows, groups), rstd.reshape(rows, groups)


def _batch_norm_backward(whole: Callable) -> Callable:
    """Of a batch norm of given means each row has a gradient of its own; of the batch's means the gradient is `whole`."""
    def backward(grad, x, weight, running_mean, running_var, mean, rstd, training: bool, eps: float, mask, *more):
        import torch
        if training:
            return whole(grad, x, weight, running_mean, running_var, mean, rstd, training, eps, mask, *more)
        wide = torch.promote_types(x.dtype, torch.float32)
        by_channel = [-1] + [1] * (x.dim() - 2)
        rows = [d for d in range(x.dim()) if d != 1]
        grad_wide, rstd = grad.to(wide), torch.rsqrt(running_var.to(wide) + eps)
        scale = rstd if weight is None else rstd * weight.to(wide)
        kept = x.dtype if weight is None else weight.dtype
        grad_weight = grad_bias = None
        if mask[1]:
            centred = x.to(wide) - running_mean.to(wide).reshape(by_channel)
            grad_weight = ((grad_wide * centred).sum(rows) * rstd).to(kept)
        if mask[2]:
            grad_bias = grad_wide.sum(rows).to(kept)
        return (grad_wide * scale.reshape(by_channel)).to(x.dtype), grad_weight, grad_bias
    return backward


def _weight_norm(v, g, dim: int = 0):
    """v with slices along `dim` whose norms are g, and the norms that they have."""
    import torch
    norms = torch.linalg.vector_norm(v, dim=[d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True,
                                     dtype=torch.promote_types(v.dtype, torch.float32))
    return v * (g / norms).to(v.dtype), norms


def _weight_norm_backward(grad, v, g, norms, dim: int):
    along = (grad * v).sum([d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True) / norms
    return ((g / norms) * (grad - v * (along / norms))).to(v.dtype), along.to(g.dtype)


@contextlib.contextmanager
def instance_norms_as_group_norms() -> Iterator[None]:
    """In here torch.nn.functional.instance_norm is a group norm of one channel each, where it keeps no means of its own."""
    import torch.nn.functional as F
    whole = F.instance_norm

    @functools.wraps(whole)
    def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                      momentum=0.1, eps=1e-5):
        has_extents = input.dim() > 2 and math.prod(input.shape[2:]) > 1
        if running_mean is not None or running_var is not None or not use_input_stats or not has_extents:
            return whole(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
        return F.group_norm(input, input.shape[1], weight, bias, eps)

    F.instance_norm = instance_norm
    try:
        yield
    finally:
        F.instance_norm = whole


def norm_decompositions() -> dict[Any, Callable]:
    """Of group and weight norms and of the backward of all norms."""
    import torch
    from torch._decomp import get_decompositions
    aten = torch.ops.aten
    found = get_decompositions([aten.native_group_norm_backward.default, aten.native_batch_norm_backward.default,
                                aten.batch_norm_backward.default])
    for op in (aten.native_batch_norm_backward.default, aten.batch_norm_backward.default):
        found[op] = _batch_norm_backward(found[op])
    return {**found, aten.native_group_norm.default: _group_norm, aten._weight_norm_interface.default: _weight_norm,
            aten._weight_norm_interface_backward.default: _weight_norm_backward}
