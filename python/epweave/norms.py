"""Group norm as calls that the op table has, so that it is divided, proved, priced and executed as these are.

torch's own decomposition ends in `as_strided` of the whole result, of which a part of the tokens has no such view.
"""
from __future__ import annotations

from collections.abc import Callable
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


def norm_decompositions() -> dict[Any, Callable]:
    """Of `native_group_norm` and its backward, which is torch's."""
    import torch
    from torch._decomp import get_decompositions
    backward = torch.ops.aten.native_group_norm_backward.default
    return {torch.ops.aten.native_group_norm.default: _group_norm, backward: get_decompositions([backward])[backward]}
