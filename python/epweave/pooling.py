"""Pooling, resampling and padding of images as calls that the op table has.

Where windows meet without padding, gap or overlap and divide the image, a window is a dimension of a reshaped image: average
pooling is its mean, nearest interpolation repeats along it. Any other average pooling is a product with a matrix for each
dimension. Any other interpolation and padding by what the image holds take its elements by number. Largest elements are
found among the elements of each window, side by side. Calls that torch refuses are left to it.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


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


def _averaged_as(result, x, rank: int):
    """Average pooling of volumes and its gradients are contiguous."""
    return result.contiguous() if rank == 3 else _laid_out_as(result, x)


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


def _is_image(x, rank: int) -> bool:
    """Whether its last dimensions have extents that are numbers, behind channels and perhaps a batch."""
    return x.dim() in (rank + 1, rank + 2) and _are_numbers(*x.shape[-rank:])


def _windows(large: Sequence[Any], small: Sequence[Any]) -> list[int] | None:
    """How many elements of `large` go with one of `small`, for each dimension; None where they do not divide."""
    return [a // b for a, b in zip(large, small)] if all(a % b == 0 for a, b in zip(large, small)) else None


def _each(x, rank: int) -> list[int]:
    x = [x] if isinstance(x, int) else list(x)
    return x * rank if len(x) == 1 else x


# ---------------------------------------------------------------------- means and repeats
def _mean(x, windows):
    parts, dims = _in_windows(x, windows)
    return _averaged_as(parts.mean(dims), x, len(windows))


def _mean_backward(grad, x, windows):
    return _averaged_as(_repeated(grad / math.prod(windows), windows), x, len(windows))


# ------------------------------------------------------------------------------- matrices
def _weigh(x, matrices: Sequence[Any], like):
    """Along each of the last dimensions, `x` times a matrix [its extent, the result's], in float32 at least."""
    import torch
    result, lead = x.to(_wide(x)), x.dim() - len(matrices)
    for i, matrix in enumerate(matrices):
        result = torch.matmul(result.transpose(lead + i, -1), matrix).transpose(lead + i, -1)
    return _averaged_as(result.to(x.dtype), like, len(matrices))


def _wide(x):
    import torch
    return torch.promote_types(x.dtype, torch.float32)


def _both_ways(count: int, extent: int, like):
    """Numbers of the result's elements as a row, of the image's as a column."""
    return _numbers(count, like).unsqueeze(0), _numbers(extent, like).unsqueeze(1)


def _numbers(count: int, like, dtype=None):
    import torch
    return torch.arange(count, device=like.device, dtype=dtype or _wide(like))


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


# ------------------------------------------------------------------------ elements by number
# Along a dimension each element of a result is a sum of elements of the image: of some places,
# [(places, weights)] or one place without a weight; without taps a dimension stays as it is.
def _take(x, taps: Sequence[list]):
    """A new tensor: `x` with each of its last dimensions made of the elements that the dimension's taps take."""
    if not any(taps):
        return x.clone()
    lead = x.dim() - len(taps)
    for dim, along in enumerate(taps, lead):
        if not along:
            continue
        taken = [_weighed(x.index_select(dim, places), weights, dim) for places, weights in along]
        x = sum(taken[1:], taken[0])
    return x


def _give_back(grad, taps: Sequence[list], sizes: Sequence[int]):
    """The gradient of the image: each element's added to those that it was taken from."""
    if not any(taps):
        return grad.clone()
    lead = grad.dim() - len(taps)
    for dim, (along, extent) in enumerate(zip(taps, sizes), lead):
        if not along:
            continue
        zeros = grad.new_zeros([*grad.shape[:dim], extent, *grad.shape[dim + 1:]])
        for places, weights in along:
            zeros = zeros.index_add(dim, places, _weighed(grad, weights, dim))
        grad = zeros
    return grad


def _weighed(x, weights, dim: int):
    return x if weights is None else x * weights.reshape([-1] + [1] * (x.dim() - 1 - dim))


def _is_copied(extent: int, count: int, like) -> bool:
    """torch's kernels for the CPU copy where the extent stays the same, whatever the scale."""
    return extent == count and like.device.type == "cpu"


def _nearest_taps(extent: int, count: int, scale: float | None, is_exact: bool, like) -> list:
    import torch
    if not is_exact and _is_copied(extent, count, like):
        return []
    if not is_exact and count == 2 * extent and like.device.type == "cpu":  # whatever the scale
        return [(torch.div(_numbers(count, like, torch.int64), 2, rounding_mode="floor"), None)]
    row = _numbers(count, like, torch.float32)  # as torch's kernels do for any image
    step = 1 / scale if scale else extent / count
    source = (row + 0.5) * step if is_exact else row * step
    return [(source.floor().clamp(max=extent - 1).to(torch.int64), None)]


def _source(row, extent: int, count: int, scale: float | None, align_corners: bool):
    """Where in the image an element of the result lies."""
    if align_corners:
        return row * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    return (row + 0.5) * (1 / scale if scale else extent / count) - 0.5


def _linear_taps(extent: int, count: int, scale: float | None, align_corners: bool, like) -> list:
    if _is_copied(extent, count, like):
        return []
    import torch
    source = _source(_numbers(count, like), extent, count, scale, align_corners).clamp(0, extent - 1)
    first = source.floor()
    after = source - first
    return [(first.to(torch.int64), 1 - after), ((first + 1).clamp(max=extent - 1).to(torch.int64), after)]


def _cubic_taps(extent: int, count: int, scale: float | None, align_corners: bool, like) -> list:
    import torch
    source = _source(_numbers(count, like), extent, count, scale, align_corners)
    first = source.floor().clamp(max=extent - 1)
    t, a = (source - first).clamp(0, 1), -0.75

    def near(x):  # a cubic up to 1 away, and another up to 2
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    # An element beyond the border is the border's.
    return [((first + i - 1).clamp(0, extent - 1).to(torch.int64), weight) for i, weight in enumerate(weights)]


# ------------------------------------------------------------------------ average pooling
def _window_counts(sizes, kernel, stride, padding, dilation, ceil_mode) -> list[int]:
    counts = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation):
        room = n + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        # The last window begins in the image or its first padding.
        counts.append(count - 1 if ceil_mode and (count - 1) * s >= n + p else count)
    return counts


class _Windows(NamedTuple):
    """Of each dimension how many windows there are, and which elements they have."""
    counts: list[int]
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]


def _windows_of(x, rank: int, kernel, stride, padding, dilation, ceil_mode) -> _Windows | None:
    """None where an extent is a symbol, and of what torch refuses."""
    sizes = x.shape[-rank:]
    each = [_each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank), _each(dilation, rank)]
    has_all = all(len(numbers) == rank for numbers in each) and _are_numbers(*each[0], *each[1], *each[3])
    if not has_all or not _is_image(x, rank):
        return None
    counts = _window_counts(sizes, *each, ceil_mode)
    is_padded = all(0 <= 2 * p <= k for k, _, p, _ in zip(*each))
    return _Windows(counts, *each) if is_padded and min(counts) > 0 else None


def _average_pool(rank: int) -> tuple[Callable, Callable]:
    def windows_of(x, kernel, stride, padding, ceil_mode, divisor) -> _Windows | None:
        found = None if divisor == 0 else _windows_of(x, rank, kernel, stride, padding, 1, ceil_mode)
        # Of volumes torch refuses windows that are larger than the image without its padding.
        is_beyond = found is not None and rank == 3 and any(k > size for k, size in zip(found.kernel, x.shape[-rank:]))
        return None if is_beyond else found

    def are_apart(x, found: _Windows, divisor) -> bool:
        """Whether the windows meet and divide the image."""
        meet = found.stride == found.kernel and not any(found.padding) and divisor is None
        return meet and all(size % k == 0 for size, k in zip(x.shape[-rank:], found.kernel))

    def weights(x, found: _Windows, has_padding, divisor):
        return [_window_matrix(*facts, has_padding, divisor is not None, x)
                for facts in zip(x.shape[-rank:], found.counts, found.kernel, found.stride, found.padding)]

    def forward(x, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        found = windows_of(x, kernel_size, stride, padding, ceil_mode, divisor_override)
        if found is None:
            return NotImplemented
        if are_apart(x, found, divisor_override):
            return _mean(x, found.kernel)
        matrices = weights(x, found, count_include_pad, divisor_override)
        return _weigh(x / divisor_override if divisor_override else x, matrices, x)

    def backward(grad, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
        found = windows_of(x, kernel_size, stride, padding, ceil_mode, divisor_override)
        if found is None:
            return NotImplemented
        if are_apart(x, found, divisor_override):
            return _mean_backward(grad, x, found.kernel)
        matrices = weights(x, found, count_include_pad, divisor_override)
        return _weigh(grad / divisor_override if divisor_override else grad, [m.t() for m in matrices], x)

    return forward, backward


def _adaptive_pool(rank: int) -> tuple[Callable, Callable]:
    def forward(x, output_size):
        sizes = x.shape[-rank:]
        if not _is_image(x, rank) or len(output_size) != rank or not _are_numbers(*output_size):
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
        windows = None if list(large) == list(small) else _windows(large, small)
        # A given scale picks the elements, even where it gives the same extent as another: 2.1 and
        # 2 of 4 elements.
        if windows and all(scale is None or scale == window for scale, window in zip(scales, windows)):
            return windows
        return None

    def taps(sizes, output_size, scales, like):
        return [_nearest_taps(*facts, is_exact, like) for facts in zip(sizes, output_size, _of_each(scales, rank))]

    def forward(x, output_size, *scales):
        sizes = x.shape[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        if windows := windows_of(output_size, sizes, scales):
            return _laid_out_as(_repeated(x, windows), x)
        return _laid_out_as(_take(x, taps(sizes, output_size, scales, x)), x)

    def backward(grad, output_size, input_size, *scales):
        sizes = input_size[-rank:]
        if not _are_numbers(*sizes, *output_size):
            return NotImplemented
        if windows := windows_of(output_size, sizes, scales):
            parts, dims = _in_windows(grad, windows)
            return _laid_out_as(parts.sum(dims), grad)
        summed = _give_back(grad.to(_wide(grad)), taps(sizes, output_size, scales, grad), sizes)
        return _laid_out_as(summed.to(grad.dtype), grad)

    return forward, backward


def _of_each(scales: Sequence, rank: int) -> list:
    return [*scales, *[None] * (rank - len(scales))]


def _smooth(rank: int, taps_of: Callable) -> tuple[Callable, Callable]:
    def taps(sizes, output_size, align_corners, scales, like):
        """None where an extent is a symbol, and where torch's kernels for the CPU disagree: backward of bicubic copies
        where no extent changes, forward does not."""
        if not _are_numbers(*sizes, *output_size):
            return None
        is_same = all(_is_copied(*extents, like) for extents in zip(sizes, output_size))
        if taps_of is _cubic_taps and is_same and any(scale not in (None, 1) for scale in scales):
            return None
        return [taps_of(extent, count, scale, align_corners, like)
                for extent, count, scale in zip(sizes, output_size, _of_each(scales, rank))]

    def forward(x, output_size, align_corners, *scales):
        found = taps(x.shape[-rank:], output_size, align_corners, scales, x)
        return NotImplemented if found is None else _laid_out_as(_take(x.to(_wide(x)), found).to(x.dtype), x)

    def backward(grad, output_size, input_size, align_corners, *scales):
        sizes = input_size[-rank:]
        found = taps(sizes, output_size, align_corners, scales, grad)
        if found is None:
            return NotImplemented
        return _laid_out_as(_give_back(grad.to(_wide(grad)), found, sizes).to(grad.dtype), grad)

    return forward, backward


# ------------------------------------------------------------------------ largest elements
def _max_pool(rank: int) -> tuple[Callable, Callable]:
    def forward(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        import torch
        import torch.nn.functional as F
        sizes = x.shape[-rank:]
        found = _windows_of(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
        if found is None or not x.is_floating_point():
            return NotImplemented
        counts, kernel, stride, padding, dilation = found
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
        # Which element of the image: its place in the window, dimension by dimension, from the last
        # one.
        index, step = 0, 1
        for dim in reversed(range(rank)):
            first = torch.arange(counts[dim], device=x.device) * stride[dim] - padding[dim]
            place = chosen % kernel[dim] * dilation[dim] + first.reshape([-1] + [1] * (rank - 1 - dim))
            if padding[dim]:  # chosen where a window has -inf alone: its first element that is in the image is
                place = torch.where(place < 0, place.remainder(dilation[dim]), place)
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
        is_legal = _is_image(x, rank) and len(output_size) == rank and _are_numbers(*output_size)
        windows = _windows(sizes, output_size) if is_legal else None
        found = of_windows(x, windows) if windows else NotImplemented
        return tuple(_averaged_as(each, x, rank) for each in found) if found is not NotImplemented else found

    def backward(grad, x, indices):
        return _averaged_as(_to_chosen(grad, x, indices, rank), x, rank)

    return forward, backward


# -------------------------------------------------------------------------------- padding
def _reflected(places, extent: int):
    return extent - 1 - (extent - 1 - places.abs()).abs()


def _replicated(places, extent: int):
    return places.clamp(0, extent - 1)


def _pad(rank: int, source: Callable) -> tuple[Callable, Callable]:
    def taps(x, padding) -> list | None:
        """None where an extent is a symbol, and of what torch refuses."""
        import torch
        sizes = x.shape[-rank:]
        if not _is_image(x, rank) or len(padding) != 2 * rank or not all(isinstance(size, int) for size in padding):
            return None
        sides = [(padding[2 * i], padding[2 * i + 1]) for i in reversed(range(rank))]
        if source is _reflected and any(max(pads) >= extent for extent, pads in zip(sizes, sides)):
            return None
        if any(extent + sum(pads) < 1 for extent, pads in zip(sizes, sides)):
            return None
        return [[(source(torch.arange(-before, extent + after, device=x.device), extent), None)] if before or after else []
                for extent, (before, after) in zip(sizes, sides)]

    def forward(x, padding):
        found = taps(x, padding)
        return NotImplemented if found is None else _laid_out_as(_take(x, found), x)

    def backward(grad, x, padding):
        found = taps(x, padding)
        return NotImplemented if found is None else _laid_out_as(_give_back(grad, found, x.shape[-rank:]), x)

    return forward, backward


def pooling_decompositions() -> dict[Any, Callable]:
    """Of pooling, interpolation and padding, and of their backward calls."""
    import torch
    aten = torch.ops.aten
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    table = {}
    for rank in (1, 2, 3):
        kinds = {f"upsample_nearest{rank}d": _nearest(rank, False), f"_upsample_nearest_exact{rank}d": _nearest(rank, True),
                 f"upsample_{linear[rank]}{rank}d": _smooth(rank, _linear_taps),
                 f"reflection_pad{rank}d": _pad(rank, _reflected), f"replication_pad{rank}d": _pad(rank, _replicated)}
        if rank > 1:
            kinds.update({f"avg_pool{rank}d": _average_pool(rank), f"_adaptive_avg_pool{rank}d": _adaptive_pool(rank),
                          f"max_pool{rank}d_with_indices": _max_pool(rank),
                          f"adaptive_max_pool{rank}d": _adaptive_max_pool(rank)})
        if rank == 2:
            kinds["upsample_bicubic2d"] = _smooth(rank, _cubic_taps)
        for name, (forward, backward) in kinds.items():
            table[getattr(aten, name).default] = forward
            table[getattr(aten, f"{name}_backward").default] = backward
    return table
