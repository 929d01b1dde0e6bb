"""Counts of numbers of which it is known how many there are, so that the counts of parts of the numbers add up."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _bincount(numbers, weights=None, minlength: int = 0):
    """`minlength` counts, where it is given. torch's has more where a number is larger, which these refuse."""
    import torch
    if minlength == 0:
        return NotImplemented
    if weights is None:
        weights = torch.ones_like(numbers, dtype=torch.int64)
    elif weights.dtype != torch.float32:
        weights = weights.to(torch.float64)
    return weights.new_zeros(minlength).scatter_add(0, numbers.to(torch.int64), weights)


def count_decompositions() -> dict[Any, Callable]:
    import torch
    return {torch.ops.aten.bincount.default: _bincount}
