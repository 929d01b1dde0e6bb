"""Pooling, resampling and padding of images as calls that the op table has.

Where windows meet without padding, gap or overlap and divide the image, a window is a dimension of a reshaped image: average
pooling is its mean, nearest interpolation repeats along it. Any other average pooling or interpolation is a product with a
matrix for each dimension. Largest elements are found among the elements of each window, side by side. Padding by what the
image holds takes its elements by number.
"""
from __future__ import annotations

import itertools
import math
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


def _are_numbers(*sizes) -> bool:
    return all(isinstance(size, int) and size > 0 for size in sizes)


def _windows(large: Sequence[Any], small: Sequence[Any]) -> list[int] | None:
    """How many elements of `large` go with one of `small`, for each dimension; None where they do not divide."""
    return [a // b for a, b in zip(large, small)] if all(a % b == 0 for a, b in zip(large, small)) else None


def _each(x, rank: int) -> list[int]:
    x = [x] if isinstance(x, int) else list(x)
    return x * rank if len(x) == 1 else x


# ---------------------------------------------------------------------- means and repeats
def _mean(x, windows):
    parts, dims = _in_windows(x, windows)
    return _laid_out_as(parts.mean(dims), x)


def _mean_backward(grad, x, windows):
    return _laid_out_as(_repeated(grad / math.prod(windows), windows), x)


# ------------------------------------------------------------------------------- matrices
def _weigh(x, matrices: Sequence[Any], like):
    """Along each of the last dimensions, `x` times a matrix [its extent, the result's], in float32 at least."""
    import torch
    result, lead = x.to(_wide(x)), x.dim() - len(matrices)
    for i, matrix in enumerate(matrices):
        result = torch.matmul(result.transpose(lead + i, -1), matrix).transpose(lead + i, -1)
    return _laid_out_as(result.to(x.dtype), like)


def _wide(x):
    import torch
    return torch.promote_types(x.dtype, torch.float32)


def _both_ways(count: int, extent: int, like, dtype=None):
    """Numbers of the result's elements as a row, of the image's as a column."""
    import torch
    dtype = dtype or _wide(like)
    return (torch.arange(count, device=like.device, dtype=dtype).unsqueeze(0),
            torch.arange(extent, device=like.device, dtype=dtype).unsqueeze(1))


def _between(first, last, column):
    return ((column >= first) & (column < last)).to(column.dtype)


def _window_matrix(extent: int, count: int, kernel: int, stride: int, padding: int, has_padding: bool, is_sum: bool, like):
    """Each result is the mean, or the sum, of a window; `has_padding`: padding is among what it divides by."""
    row, column = _both_ways(count, extent, like)
    first = row * stride - padding
    last = (first + kernel).clamp(max=extent + padding)
    size = last - first if has_padding else last.clamp(max=extent) - first.clamp(min=0)
    weights = _between(first, last, column)
    return weights if is_sum else weights / size


def _adaptive_matrix(extent: int, count: int, like):
    import torch
    row, column = _both_ways(count, extent, like)
    # In integers, as a quotient that is rounded may fall short of a whole number.
    whole = row.to(torch.int64) * extent
    first = torch.div(whole, count, rounding_mode="floor")
    last = torch.div(whole + extent + count - 1, count, rounding_mode="floor")
    return _between(first, last, column) / (last - first)


def _nearest_matrix(extent: int, count: int, scale: float | None, is_exact: bool, like):
    import torch
    row, column = _both_ways(count, extent, like, torch.float32)  # as torch's kernels do for any image
    step = 1 / scale if scale else extent / count
    source = ((row + 0.5) * step if is_exact else row * step).floor().clamp(max=extent - 1)
    return (column == source).to(_wide(like))


def _source(row, extent: int, count: int, scale: float | None, align_corners: bool):
    """Where in the image an element of the result lies."""
    if align_corners:
        return row * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    return (row + 0.5) * (1 / scale if scale else extent / count) - 0.5


def _linear_matrix(extent: int, count: int, scale: float | None, align_corners: bool, like):
    row, column = _both_ways(count, extent, like)
    source = _source(row, extent, count, scale, align_corners).clamp(0, extent - 1)
    return (1 - (source - column).abs()).clamp(min=0)


def _cubic_matrix(extent: int, count: int, scale: float | None, align_corners: bool, like):
    row, column = _both_ways(count, extent, like)
    source = _source(row, extent, count, scale, align_corners)
    first = source.floor()
    t, a = source - first, -0.75

    def near(x):  # a cubic up to 1 away, and another up to 2
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    # An element beyond the border is the border's.
    taps = [(column == (first + i - 1).clamp(0, extent - 1)).to(row.dtype) * weight for i, weight in enumerate(weights)]
    return taps[0] + taps[1] + taps[2] + taps[3]


# ------------------------------------------------------------------------ average pooling
def _window_counts(sizes, kernel, stride, padding, dilation, ceil_mode) -> list[int]:
    counts = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation):
        room = n + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        # The last window begins in the image or its first padding.
        counts.append(count - 1 if ceil_mode and (count - 1) * s >= n + p else count)
    return counts


def _average_pool(rank: int) -> tuple[Callable, Callable]:
    def weights(x, kernel, stride, padding, ceil_mode, has_padding, divisor):
        sizes = x.shape[-rank:]
        kernel, padding = _each(kernel, rank), _each(padding, rank)
        stride = _each(stride, rank) if stride else kernel
        counts = _window_counts(sizes, kernel, stride, padding, [1] * rank, ceil_mode)
        return [_window_matrix(*facts, has_padding, divisor is not None, x)
                for facts in zip(sizes, counts, kernel, stride, padding)]

    def windows_of(sizes, kernel, stride, padding, divisor) -> list[int] | None:
        kernel = _each(kernel, rank)
        meets = (not stride or _each(stride, rank) == kernel) and not any(_each(padding, rank)) and divisor is None
        return kernel if meets and all(size % k == 0 for size, k in zip(sizes, kernel)) else None

    def forward(x, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes):
            return NotImplemented
        if windows := windows_of(sizes, kernel_size, stride, padding, divisor_override):
            return _mean(x, windows)
        matrices = weights(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _weigh(x / divisor_override if divisor_override else x, matrices, x)

    def backward(grad, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes):
            return NotImplemented
        if windows := windows_of(sizes, kernel_size, stride, padding, divisor_override):
            return _mean_backward(grad, x, windows)
        matrices = weights(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _weigh(grad / divisor_override if divisor_override else grad, [m.t() for m in matrices], x)

    return forward, backward


def _adaptive_pool(rank: int) -> tuple[Callable, Callable]:
    def forward(x, output_size):
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        if windows := _windows(sizes, output_size):
            return _mean(x, windows)
        return _weigh(x, [_adaptive_matrix(*facts, x) for facts in zip(sizes, output_size)], x)

    def backward(grad, x):
        sizes, counts = x.shape[-rank:], grad.shape[-rank:]
        if not _are_numbers(*sizes, *counts):
            return NotImplemented
        if windows := _windows(sizes, counts):
            return _mean_backward(grad, x, windows)
        return _weigh(grad, [_adaptive_matrix(*facts, x).t() for facts in zip(sizes, counts)], x)

    return forward, backward


# -------------------------------------------------------------------------- interpolation
def _nearest(rank: int, is_exact: bool) -> tuple[Callable, Callable]:
    def windows_of(large, small, scales):
        windows = _windows(large, small)
        # A given scale picks the elements, even where it gives the same extent as another: 2.1 and 2 of 4 elements.
        if windows and all(scale is None or scale == window for scale, window in zip(scales, windows)):
            return windows
        return None

    def scales_of(scales):
        return [*scales, *[None] * (rank - len(scales))]

    def forward(x, output_size, *scales):
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        if windows := windows_of(output_size, sizes, scales):
            return _laid_out_as(_repeated(x, windows), x)
        return _weigh(x, [_nearest_matrix(*facts, is_exact, x)
                          for facts in zip(sizes, output_size, scales_of(scales))], x)

    def backward(grad, output_size, input_size, *scales):
        sizes = input_size[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        if windows := windows_of(output_size, sizes, scales):
            parts, dims = _in_windows(grad, windows)
            return _laid_out_as(parts.sum(dims), grad)
        return _weigh(grad, [_nearest_matrix(*facts, is_exact, grad).t()
                             for facts in zip(sizes, output_size, scales_of(scales))], grad)

    return forward, backward


def _smooth(rank: int, matrix: Callable) -> tuple[Callable, Callable]:
    def weights(sizes, output_size, align_corners, scales, like):
        scales = [*scales, *[None] * (rank - len(scales))]
        return [matrix(extent, count, scale, align_corners, like)
                for extent, count, scale in zip(sizes, output_size, scales)]

    def forward(x, output_size, align_corners, *scales):
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        return _weigh(x, weights(sizes, output_size, align_corners, scales, x), x)

    def backward(grad, output_size, input_size, align_corners, *scales):
        sizes = input_size[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        return _weigh(grad, [m.t() for m in weights(sizes, output_size, align_corners, scales, grad)], grad)

    return forward, backward


# ------------------------------------------------------------------------ largest elements
def _max_pool(rank: int) -> tuple[Callable, Callable]:
    def forward(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        import torch
        import torch.nn.functional as F
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes) or not x.is_floating_point():
            return NotImplemented
        kernel, padding, dilation = (_each(each, rank) for each in (kernel_size, padding, dilation))
        stride = _each(stride, rank) if stride else kernel
        counts = _window_counts(sizes, kernel, stride, padding, dilation, ceil_mode)
        reach = [(count - 1) * s + 1 for count, s in zip(counts, stride)]
        beyond = [r + d * (k - 1) - n - p for r, d, k, n, p in zip(reach, dilation, kernel, sizes, padding)]
        pads = [pad for p, more in zip(reversed(padding), reversed(beyond)) for pad in (p, max(more, 0))]
        padded = F.pad(x, pads, value=-math.inf) if any(pads) else x
        elements = []
        for place in itertools.product(*map(range, kernel)):
            element = padded
            for dim, (i, d, r, s) in enumerate(zip(place, dilation, reach, stride), -rank):
                element = torch.ops.aten.slice.Tensor(element, dim + x.dim(), i * d, i * d + r, s)
            elements.append(element)
        largest, chosen = torch.stack(elements, -1).max(-1)
        # Which element of the image: its place in the window, dimension by dimension, from the last one.
        index, step = 0, 1
        for dim in reversed(range(rank)):
            first = torch.arange(counts[dim], device=x.device) * stride[dim] - padding[dim]
            place = chosen % kernel[dim] * dilation[dim] + first.reshape([-1] + [1] * (rank - 1 - dim))
            index, step, chosen = index + place * step, step * sizes[dim], chosen // kernel[dim]
        return _laid_out_as(largest, x), _laid_out_as(index, x)

    def backward(grad, x, kernel_size, stride, padding, dilation, ceil_mode, indices):
        return _to_chosen(grad, x, indices, rank)

    return forward, backward


def _to_chosen(grad, x, indices, rank: int):
    """Each gradient added to the element of the image that was chosen."""
    import torch
    lead = list(x.shape[:-rank])
    zeros = torch.zeros([*lead, math.prod(x.shape[-rank:])], dtype=x.dtype, device=x.device)
    count = math.prod(grad.shape[-rank:])
    summed = zeros.scatter_add(-1, indices.reshape([*lead, count]), grad.reshape([*lead, count]))
    return _laid_out_as(summed.reshape(x.shape), x)


def _adaptive_max_pool(rank: int) -> tuple[Callable, Callable]:
    of_windows, _ = _max_pool(rank)

    def forward(x, output_size):
        sizes = x.shape[-rank:]
        windows = _windows(sizes, output_size) if _are_numbers(*sizes, *output_size) else None
        return of_windows(x, windows) if windows else NotImplemented

    def backward(grad, x, indices):
        return _to_chosen(grad, x, indices, rank)

    return forward, backward


# -------------------------------------------------------------------------------- padding
def _reflected(places, extent: int):
    return extent - 1 - (extent - 1 - places.abs()).abs()


def _replicated(places, extent: int):
    return places.clamp(0, extent - 1)


def _pad(rank: int, source: Callable) -> tuple[Callable, Callable]:
    def along(x, sizes, padding):
        """For each padded dimension its number and extent, and which of its elements each result has."""
        import torch
        for i in range(rank):
            before, after = padding[2 * i:2 * i + 2]
            extent = sizes[len(sizes) - 1 - i]
            places = torch.arange(-before, extent + after, device=x.device)
            yield len(sizes) - 1 - i, extent, source(places, extent)

    def forward(x, padding):
        if not all(isinstance(size, int) for size in (*x.shape[-rank:], *padding)):
            return NotImplemented
        result = x
        for dim, _, places in along(x, x.shape, padding):
            result = result.index_select(dim, places)
        return _laid_out_as(result, x)

    def backward(grad, x, padding):
        if not all(isinstance(size, int) for size in (*x.shape[-rank:], *padding)):
            return NotImplemented
        result = grad
        for dim, extent, places in along(x, x.shape, padding):
            zeros = result.new_zeros([*result.shape[:dim], extent, *result.shape[dim + 1:]])
            result = zeros.index_add(dim, places, result)
        return _laid_out_as(result, x)

    return forward, backward


def pooling_decompositions() -> dict[Any, Callable]:
    """Of pooling, interpolation and padding, and of their backward calls."""
    import torch
    aten = torch.ops.aten
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    table = {}
    for rank in (1, 2, 3):
        kinds = {f"upsample_nearest{rank}d": _nearest(rank, False), f"_upsample_nearest_exact{rank}d": _nearest(rank, True),
                 f"upsample_{linear[rank]}{rank}d": _smooth(rank, _linear_matrix),
                 f"reflection_pad{rank}d": _pad(rank, _reflected), f"replication_pad{rank}d": _pad(rank, _replicated)}
        if rank > 1:
            kinds.update({f"avg_pool{rank}d": _average_pool(rank), f"_adaptive_avg_pool{rank}d": _adaptive_pool(rank),
                          f"max_pool{rank}d_with_indices": _max_pool(rank),
                          f"adaptive_max_pool{rank}d": _adaptive_max_pool(rank)})
        if rank == 2:
            kinds["upsample_bicubic2d"] = _smooth(rank, _cubic_matrix)
        for name, (forward, backward) in kinds.items():
            table[getattr(aten, name).default] = forward
            table[getattr(aten, f"{name}_backward").default] = backward
    return table
