"""Average pooling and nearest interpolation as calls that the op table has, where each element belongs to one window.

That is so where windows meet without padding, gap or overlap, and their extent divides the image. A window is then a dimension of a
reshaped image: pooling is its mean, interpolation repeats along it. Other calls stay as they are.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def _in_windows(x, windows: Sequence[int]):
    """`x` with each of the last dimensions as (windows, window), and the dimensions that are windows."""
    lead = x.dim() - len(windows)
    shape = list(x.shape[:lead])
    for size, window in zip(x.shape[lead:], windows):
        shape += [size // window, window]
    return x.reshape(shape), list(range(lead + 1, len(shape), 2))


def _laid_out_as(result, x):
    """`result` in the memory format of `x`, as torch's kernels give it: a later view may rest on it."""
    from torch._prims_common import suggest_memory_format
    return result.contiguous(memory_format=suggest_memory_format(x))


def _repeated(x, windows: Sequence[int]):
    """Each element of the last dimensions, `windows` times along each."""
    lead = x.dim() - len(windows)
    one, many = list(x.shape[:lead]), list(x.shape[:lead])
    for size, window in zip(x.shape[lead:], windows):
        one += [size, 1]
        many += [size, window]
    sizes = [size * window for size, window in zip(x.shape[lead:], windows)]
    return x.reshape(one).expand(many).reshape([*x.shape[:lead], *sizes])


def _windows(large: Sequence[Any], small: Sequence[Any]) -> list[int] | None:
    """How many elements of `large` go with one of `small`, for each dimension; None where they do not divide, or are symbols."""
    if not all(isinstance(size, int) and size > 0 for size in (*large, *small)):
        return None
    return [a // b for a, b in zip(large, small)] if all(a % b == 0 for a, b in zip(large, small)) else None


def _pool_windows(sizes, kernel, stride=(), padding=0, divisor=None) -> list[int] | None:
    def each(x):
        x = [x] if isinstance(x, int) else list(x)
        return x * len(sizes) if len(x) == 1 else x

    kernel = each(kernel)
    meets = (not stride or each(stride) == kernel) and not any(each(padding)) and divisor is None
    if not meets or not all(isinstance(size, int) and size > 0 and size % k == 0 for size, k in zip(sizes, kernel)):
        return None
    return kernel


def _mean(x, windows):
    parts, dims = _in_windows(x, windows)
    return _laid_out_as(parts.mean(dims), x)


def _mean_backward(grad, x, windows):
    count = 1
    for window in windows:
        count *= window
    return _laid_out_as(_repeated(grad / count, windows), x)


def _average_pool(rank: int) -> tuple[Callable, Callable]:
    def forward(x, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        windows = _pool_windows(x.shape[-rank:], kernel_size, stride, padding, divisor_override)
        return _mean(x, windows) if windows else NotImplemented

    def backward(grad, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        windows = _pool_windows(x.shape[-rank:], kernel_size, stride, padding, divisor_override)
        return _mean_backward(grad, x, windows) if windows else NotImplemented

    return forward, backward


def _adaptive_pool(rank: int) -> tuple[Callable, Callable]:
    def forward(x, output_size):
        windows = _windows(x.shape[-rank:], output_size)
        return _mean(x, windows) if windows else NotImplemented

    def backward(grad, x):
        windows = _windows(x.shape[-rank:], grad.shape[-rank:])
        return _mean_backward(grad, x, windows) if windows else NotImplemented

    return forward, backward


def _nearest(rank: int) -> tuple[Callable, Callable]:
    def windows_of(large, small, scales):
        windows = _windows(large, small)
        # A given scale picks the elements, even where it gives the same extent as another: 2.1 and 2 of 4 elements.
        if windows and all(scale is None or scale == window for scale, window in zip(scales, windows)):
            return windows
        return None

    def forward(x, output_size, *scales):
        windows = windows_of(output_size, x.shape[-rank:], scales)
        return _laid_out_as(_repeated(x, windows), x) if windows else NotImplemented

    def backward(grad, output_size, input_size, *scales):
        windows = windows_of(output_size, input_size[-rank:], scales)
        if not windows:
            return NotImplemented
        parts, dims = _in_windows(grad, windows)
        return _laid_out_as(parts.sum(dims), grad)

    return forward, backward


def pooling_decompositions() -> dict[Any, Callable]:
    """Of average pooling, adaptive average pooling and nearest interpolation, and of their backward calls."""
    import torch
    aten = torch.ops.aten
    table = {}
    for rank in (1, 2, 3):
        kinds = {f"upsample_nearest{rank}d": _nearest, f"_upsample_nearest_exact{rank}d": _nearest}
        if rank > 1:
            kinds.update({f"avg_pool{rank}d": _average_pool, f"_adaptive_avg_pool{rank}d": _adaptive_pool})
        for name, of_rank in kinds.items():
            forward, backward = of_rank(rank)
            table[getattr(aten, name).default] = forward
            table[getattr(aten, f"{name}_backward").default] = backward
    return table
