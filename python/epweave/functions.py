"""Functions that torch has a kernel for and nothing that takes it apart, made of calls that the op table has."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


# ---- ranks of elements: the ones at their places in sorted rows
def _at(values, indices, place, dim: int, keepdim: bool):
    import torch
    if not isinstance(place, int):  # one for each row
        values, indices = values.gather(dim, place), indices.gather(dim, place)
    else:  # dense, as torch's
        values, indices = (x.narrow(dim, place, 1).clone(memory_format=torch.contiguous_format) for x in (values, indices))
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _kthvalue(x, k, dim=-1, keepdim=False):
    if x.dim() == 0 or not isinstance(k, int) or not 1 <= k <= x.shape[dim]:
        return NotImplemented
    return _at(*x.sort(dim=dim, stable=True), k - 1, dim, keepdim)


def _median_along(ignores_nan: bool) -> Callable:
    def median(x, dim, keepdim=False):
        import torch
        if x.dim() == 0 or x.shape[dim] == 0:
            return NotImplemented
        values, indices = x.sort(dim=dim, stable=True)  # NaN behind all numbers
        middle = (x.shape[dim] - 1) // 2
        if not x.dtype.is_floating_point:
            return _at(values, indices, middle, dim, keepdim)
        nans = x.isnan().sum(dim, keepdim=True)
        if ignores_nan:
            place = ((x.shape[dim] - nans - 1) // 2).clamp(min=0)
        else:  # the first NaN, where there is one
            place = torch.where(nans > 0, x.shape[dim] - nans, middle)
        return _at(values, indices, place, dim, keepdim)
    return median


def _median(ignores_nan: bool) -> Callable:
    along = _median_along(ignores_nan)

    def median(x):
        if x.numel() == 0:
            return NotImplemented
        return along(x.reshape(-1), 0)[0]
    return median


# ---- distances of rows
def _distance(difference, p: float):
    size = difference.abs()
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == math.inf:
        return size.amax(-1) if size.shape[-1] != 0 else size.sum(-1)
    return size.square().sum(-1).sqrt() if p == 2 else size.pow(p).sum(-1).pow(1 / p)


def _distance_gradient(grad, difference, distance, p: float):
    """Of the first rows; 0 where rows are equal."""
    import torch
    grad, distance = grad.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return difference.sign() * grad
    if p == math.inf:
        return difference.sign() * grad * (difference.abs() == distance).to(grad.dtype)
    if p == 2:
        ratio = difference / distance
    else:
        ratio = difference.sign() * difference.abs().pow(p - 1) * distance.pow(1 - p)
    is_zero = distance == 0 if p >= 1 else (distance == 0) | (difference == 0)
    return (grad * ratio).masked_fill(is_zero, 0)


def _cdist(x, y, p, compute_mode):
    return _distance(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _cdist_backward(grad, x, y, p, distance):
    return _distance_gradient(grad, x.unsqueeze(-2) - y.unsqueeze(-3), distance, p).sum(-2)


def _pairs(count: int, device):
    """Numbers of the rows of each pair."""
    import torch
    row = torch.arange(count, device=device)
    return [side.reshape(-1)[(row.unsqueeze(1) < row).reshape(-1)] for side in torch.meshgrid(row, row, indexing="ij")]


# ---- places
def _put(x, index, source, accumulate=False):
    return x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(x.shape)


def _index_reduce(x, dim, index, source, reduce, *, include_self=True):
    if x.dim() == 0 or source.dim() != x.dim():
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    kind = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}[reduce]
    return x.scatter_reduce(dim, index.reshape(shape).expand_as(source), source, kind, include_self=include_self)


def _diagonal_scatter(x, source, offset=0, dim1=0, dim2=1):
    import torch
    result = x.clone(memory_format=torch.contiguous_format)
    result.diagonal(offset, dim1, dim2).copy_(source)
    return result


# ---- products
def _trilinear(a, b, c, expand1, expand2, expand3, sumdim, unroll_dim=1):
    def widened(x, dims):
        for dim in sorted(dims):
            x = x.unsqueeze(dim)
        return x
    product = widened(a, expand1) * widened(b, expand2) * widened(c, expand3)
    return product.sum(sumdim) if sumdim else product


def _addbmm(x, a, b, *, beta=1, alpha=1):
    product = (a @ b).sum(0) * alpha
    return product if beta == 0 else x * beta + product  # what is in x then counts for nothing, NaN neither


# ---- numbers that are rounded as in fewer bits
def _wide(x):
    return x.float() if x.dtype.itemsize < 4 else x


def _quantized(x, scale, zero_point, low, high):
    import torch
    moves_halves = isinstance(zero_point, torch.Tensor) and zero_point.dtype.is_floating_point
    number = (x * (1 / scale) + zero_point).round() if moves_halves else (x * (1 / scale)).round() + zero_point
    return (number.clamp(low, high) - zero_point) * scale, (number >= low) & (number <= high)


def _fake_quantize(x, scale, zero_point, quant_min, quant_max):
    values, kept = _quantized(x.float(), scale, zero_point, quant_min, quant_max)
    return values.to(x.dtype), kept


def _fake_quantize_channels(x, scale, zero_point, axis, quant_min, quant_max):
    shape = [1] * x.dim()
    shape[axis] = -1
    values, kept = _quantized(_wide(x), scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)
    return values.to(x.dtype), kept


# ---- complex numbers
def _angle(x):
    import torch
    if x.dtype.is_complex:
        parts = torch.view_as_real(x.resolve_conj())
        return torch.atan2(parts[..., 1], parts[..., 0])
    return torch.where(x.isnan(), x, (x < 0).to(x.dtype) * math.pi) if x.dtype.is_floating_point else NotImplemented


def _of_complex(function: Callable) -> Callable:
    def call(x):
        import torch
        return function(*torch.view_as_real(x.resolve_conj()).unbind(-1)) if x.dtype.is_complex else NotImplemented
    return call


def _length(real, imaginary):
    import torch
    return torch.hypot(real, imaginary)


def _complex(real, imaginary):
    import torch
    return torch.view_as_complex(torch.stack((real, imaginary), -1))


def _exponential(real, imaginary):
    size = real.exp()
    return _complex(size * imaginary.cos(), size * imaginary.sin())


def _direction(real, imaginary):
    size = _length(real, imaginary)
    is_zero = size == 0
    return _complex((real / size).masked_fill(is_zero, 0), (imaginary / size).masked_fill(is_zero, 0))


def _product(product: Callable) -> Callable:
    def call(a, b):
        import torch
        if not a.dtype.is_complex:
            return NotImplemented
        (x, y), (v, w) = (torch.view_as_real(z.resolve_conj()).unbind(-1) for z in (a, b))
        return _complex(product(x, v) - product(y, w), product(x, w) + product(y, v))
    return call


def _zeros(size, *, dtype=None, layout=None, device=None, pin_memory=None):
    import torch
    return torch.zeros(size, dtype=dtype, device=device)


def function_decompositions() -> dict[Any, Callable]:
    import torch
    aten = torch.ops.aten
    return {
        aten.kthvalue.default: _kthvalue,
        aten.median.default: _median(False), aten.median.dim: _median_along(False),
        aten.nanmedian.default: _median(True), aten.nanmedian.dim: _median_along(True),
        aten._cdist_forward.default: _cdist, aten._cdist_backward.default: _cdist_backward,
        aten.put.default: _put, aten.index_reduce.default: _index_reduce, aten.diagonal_scatter.default: _diagonal_scatter,
        aten._trilinear.default: _trilinear, aten.addbmm.default: _addbmm,
        aten.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantize,
        aten.fake_quantize_per_channel_affine_cachemask.default: _fake_quantize_channels,
        aten.angle.default: _angle, aten._neg_view.default: torch.neg, aten._efficientzerotensor.default: _zeros,
        aten.abs.default: _of_complex(_length), aten.exp.default: _of_complex(_exponential), aten.sgn.default: _of_complex(_direction),
        aten.mm.default: _product(torch.mm), aten.bmm.default: _product(torch.bmm),
    }
