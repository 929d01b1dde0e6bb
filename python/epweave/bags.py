"""Embedding bags as lookups and a reduction of each bag's rows, which the op table has."""
from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator


def _of_equal_bags(rows, is_padding, mode: str):
    """[bags, rows of each, width] -> [bags, width]."""
    if mode == "max":
        if is_padding is None:
            return rows.max(1).values
        largest = rows.masked_fill(is_padding.unsqueeze(-1), -math.inf).max(1).values
        return largest.masked_fill(is_padding.all(1, keepdim=True), 0)
    if is_padding is not None:
        rows = rows.masked_fill(is_padding.unsqueeze(-1), 0)
    if mode == "sum":
        return rows.sum(1)
    if is_padding is None:
        return rows.mean(1)
    return rows.sum(1) / (~is_padding).sum(1, keepdim=True).clamp(min=1)


def _of_other_bags(rows, is_padding, offsets, mode: str):
    """[rows, width], and where each bag begins -> [bags, width]."""
    import torch
    places = torch.arange(rows.shape[0], device=rows.device)
    bag = torch.bucketize(places, offsets.to(places.dtype), right=True) - 1
    if is_padding is not None:
        rows = rows.masked_fill(is_padding.unsqueeze(-1), 0)
    total = rows.new_zeros(offsets.shape[0], rows.shape[1]).index_add(0, bag, rows)
    if mode == "sum":
        return total
    counted = torch.ones_like(places) if is_padding is None else (~is_padding).to(places.dtype)
    count = places.new_zeros(offsets.shape[0]).index_add(0, bag, counted)
    return total / count.clamp(min=1).unsqueeze(-1)


def _taken_apart(whole: Callable) -> Callable:
    @functools.wraps(whole)
    def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
                      sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None):
        import torch.nn.functional as F
        has_equal_bags = input.dim() == 2
        is_weighed = per_sample_weights is not None
        is_legal = (input.dim() in (1, 2) and 0 not in input.shape[1:] and weight.dim() == 2
                    and (padding_idx is None or -weight.shape[0] <= padding_idx < weight.shape[0])
                    and (not is_weighed or (per_sample_weights.shape, per_sample_weights.dtype) == (input.shape, weight.dtype))
                    and not (mode == "max" and scale_grad_by_freq))
        is_other = not is_legal or max_norm is not None or sparse or (mode == "max" and not has_equal_bags) or has_equal_bags == (
            offsets is not None) or mode not in ("sum", "mean", "max") or (is_weighed and mode != "sum")
        if is_other:  # or an error that torch has words for
            return whole(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                         per_sample_weights, include_last_offset, padding_idx)
        rows = F.embedding(input, weight, scale_grad_by_freq=scale_grad_by_freq)
        if is_weighed:
            rows = rows * per_sample_weights.unsqueeze(-1)
        is_padding = None if padding_idx is None else input == padding_idx % weight.shape[0]
        if has_equal_bags:
            return _of_equal_bags(rows, is_padding, mode)
        return _of_other_bags(rows, is_padding, offsets[:-1] if include_last_offset else offsets, mode)
    return embedding_bag


@contextlib.contextmanager
def bags_taken_apart() -> Iterator[None]:
    """In here torch.nn.functional.embedding_bag is such calls, where nothing is renormalised and no gradient sparse."""
    import torch.nn.functional as F
    whole = F.embedding_bag
    F.embedding_bag = _taken_apart(whole)
    try:
        yield
    finally:
        F.embedding_bag = whole
