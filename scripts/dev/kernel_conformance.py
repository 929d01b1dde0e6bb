#!/usr/bin/env python3
"""Write testdata/kernels/cases.json: calls of ops and what PyTorch's CPU kernels make of them.

Needs torch. The file is committed; src/replay/kernels/host/conformance_test.cc runs each case through our kernels.
A case is {"op", "args" (one per schema parameter), "results", "after" (the written argument's storage), "ulps",
"atol"}: an element may differ by `ulps` units of its last place plus `atol`; both 0 means the same bits (any NaN
equals any NaN). Where torch has no CPU kernel, or rounds in the middle, the expectation is computed in float64.
"out": what an `out=` list holds. "layouts": of uninitialised results only dtype, sizes and strides are compared.
"is_refused": torch refuses the call, and so must we. "recorded": the strides of torch's results, which a graph recorded;
such a case is run with recorded results only.
The family `vary` makes of the cases written out those of other layouts, sizes and dtypes that an op lacks. What finds
single wrong formulas (scripts/dev/mutate_kernels.py) is in kernel_edge_cases.py.

Usage: kernel_conformance.py [-o FILE] [--check FILE]     --check: exit 1 if FILE is not what would be written
"""
import argparse
import collections
import copy
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

import kernel_edge_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = []
DONE = []  # what `vary` makes more cases of
Done = collections.namedtuple("Done", "op args expect bounds")
INF, NAN = math.inf, math.nan


def rand(*sizes, dtype=torch.float32, scale=1.0):
    if dtype == torch.bool:
        return torch.randint(0, 2, sizes, generator=GEN).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(-9, 10, sizes, generator=GEN).to(dtype)
    if dtype.is_complex:
        return torch.view_as_complex(torch.randn(*sizes, 2, generator=GEN))
    return (torch.randn(*sizes, generator=GEN, dtype=torch.float64) * scale).to(dtype)


def ints(low, high, *sizes, dtype=torch.int64):
    return torch.randint(low, high, sizes, generator=GEN).to(dtype)


def storage_bytes(t):
    return bytes(t.untyped_storage().tolist())


def encode_tensor(t):
    return {"tensor": {"dtype": str(t.dtype), "sizes": list(t.shape), "strides": list(t.stride()),
                       "offset": t.storage_offset(), "data": storage_bytes(t.detach()).hex()}}


def compact(t):
    return t.detach().resolve_conj().clone(memory_format=torch.contiguous_format)


def encode(v):
    if isinstance(v, torch.Tensor):
        return encode_tensor(v)
    if isinstance(v, bool) or v is None:
        return v
    if isinstance(v, int):
        return v
    if isinstance(v, float):
        return {"f": repr(v)}
    if isinstance(v, torch.dtype):
        return {"dtype": str(v)}
    if hasattr(v, "encoded"):  # a nested graph
        return v.encoded(encode)
    if isinstance(v, dict) and not v:
        return {"dict": {}}
    if isinstance(v, (list, tuple)):
        return {"list": [encode(x) for x in v]}
    return {"text": str(v)}


def tensors_in(v):
    return [v] if isinstance(v, torch.Tensor) else [t for x in v for t in tensors_in(x)] if isinstance(v, (list, tuple)) else []


def each_tensor(v, change):
    if isinstance(v, torch.Tensor):
        return change(v)
    return [each_tensor(x, change) for x in v] if isinstance(v, (list, tuple)) else v


def copied(v):
    """Storage, too: an in-place op may write it."""
    return each_tensor(v, lambda t: copy.deepcopy(t.detach()))


def find(op):
    packet, overload = op.split(".")[-2:]
    return getattr(getattr(getattr(torch.ops, op.split(".")[0]), packet), overload)


def fill_args(op, args, kwargs):
    filled = list(args)
    for i, p in enumerate(find(op)._schema.arguments):
        if i >= len(args):
            filled.append(kwargs.get(p.name, p.default_value))
    return filled


def case(op, *args, expect=None, ulps=0, atol=0.0, args_full=None, is_view=False, has_values=True, is_recorded=False,
         **kwargs):
    full = args_full if args_full is not None else fill_args(op, args, kwargs)
    encoded = [encode(a) for a in full]  # before an in-place op writes
    DONE.append(Done(op, copied(full), expect, {"ulps": ulps, "atol": atol, "is_view": is_view,
                                                       "has_values": has_values}))
    if expect is None:
        expect = find(op)(*args, **kwargs)
    results = list(expect) if isinstance(expect, (tuple, list)) else [expect]
    layouts = [list(r.stride()) if isinstance(r, torch.Tensor) else [] for r in results]
    if not has_values:
        results = [torch.zeros(r.shape, dtype=r.dtype) for r in results]
    record = {"op": op, "args": encoded,
              "results": [encode_tensor(compact(r)) if isinstance(r, torch.Tensor) else encode(r) for r in results]}
    if op.endswith(".out"):  # what its last argument holds
        record = {"op": op, "args": encoded, "results": [None], "out": record["results"]}
    if op.split(".")[1].endswith("_") and not op.split(".")[1].startswith("__"):
        record["after"] = storage_bytes(full[0]).hex()
    if is_view:
        record["strides"] = [list(r.stride()) for r in results]
    if not has_values:
        record["layouts"] = layouts
    if is_recorded:
        record["recorded"] = layouts
    if ulps:
        record["ulps"] = ulps
    if atol:
        record["atol"] = atol
    CASES.append(record)


def refuse(op, *args, **kwargs):
    """What torch refuses, we do."""
    full = fill_args(op, args, kwargs)
    encoded = [encode(a) for a in full]
    try:
        find(op)(*args, **kwargs)
    except (RuntimeError, IndexError, ValueError):
        CASES.append({"op": op, "args": encoded, "results": [], "is_refused": True})
        return
    sys.exit(f"{op}: torch takes what it was said to refuse")


def strided(t):
    """The same values in a tensor with gaps and an offset."""
    wide = torch.zeros([2 * s for s in t.shape], dtype=t.dtype)
    view = wide[tuple(slice(1, None, 2) for _ in t.shape)] if t.dim() else wide
    view.copy_(t)
    return view


EDGES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-40, -1e-40, 88.7, -88.7, -103.0, 3.4e38, 0.5, -2.5]
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def pointwise():
    edge = torch.tensor(EDGES)
    grid_a, grid_b = edge[:, None], edge[None, :]
    for op in ("add", "sub", "mul", "div"):
        case(f"aten.{op}.Tensor", grid_a.contiguous(), grid_b.contiguous())
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            case(f"aten.{op}.Tensor", rand(3, 5, dtype=dtype), rand(5, dtype=dtype))
        case(f"aten.{op}.Tensor", rand(4, 3).t(), strided(rand(3, 4)))
        case(f"aten.{op}.Tensor", rand(0, 3), rand(3))
    for op in ("add", "sub", "mul"):
        case(f"aten.{op}.Tensor", ints(-5, 5, 3, 4), ints(-5, 5, 4, dtype=torch.int32))
        case(f"aten.{op}.Tensor", torch.tensor([2**62, -2**63]), torch.tensor([2**62, -1]))
    case("aten.add.Tensor", rand(3, 4), ints(0, 9, 3, 4))
    case("aten.add.Tensor", rand(3, dtype=torch.bfloat16), rand(3))
    case("aten.add.Tensor", rand(3, dtype=torch.bfloat16), 0.1)
    case("aten.add.Tensor", ints(0, 9, 3), True)
    case("aten.mul.Tensor", rand(4, dtype=torch.bfloat16), 1.1)
    case("aten.mul.Tensor", torch.tensor(1.5), ints(0, 9, 3))
    case("aten.div.Tensor", torch.tensor(7.0), torch.tensor(3))
    case("aten.div.Tensor", ints(1, 9, 4), 2)
    case("aten.add.Tensor", rand(4), rand(4), alpha=2.5, ulps=1, atol=1e-6)
    case("aten.mul.Tensor", rand(6, dtype=torch.complex64), rand(6, dtype=torch.complex64), ulps=0, atol=1e-6)
    case("aten.mul.Tensor", rand(2, 3, dtype=torch.complex64), rand(3, dtype=torch.complex64), atol=1e-6)
    case("aten.add.Tensor", rand(6, dtype=torch.complex64), rand(6, dtype=torch.complex64))
    case("aten._conj.default", rand(2, 3, dtype=torch.complex64))
    for other in (3, -3, 8):
        case("aten.floor_divide.default", ints(-20, 20, 12), other)
        case("aten.remainder.Scalar", ints(-20, 20, 12), other)
    case("aten.floor_divide.default", rand(8, scale=10), 2.5)
    case("aten.maximum.default", grid_a.contiguous(), grid_b.contiguous())
    case("aten.minimum.default", grid_a.contiguous(), grid_b.contiguous())
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        case(f"aten.{op}.Tensor", grid_a.contiguous(), grid_b.contiguous())
        case(f"aten.{op}.Scalar", ints(-3, 3, 8), 1)
        case(f"aten.{op}.Tensor", ints(-3, 3, 4, 1), ints(-3, 3, 5, dtype=torch.int32))
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        case(f"aten.{op}.Tensor", rand(3, 4, dtype=torch.bool), rand(4, dtype=torch.bool))
        case(f"aten.{op}.Tensor", ints(-99, 99, 6), ints(-99, 99, 6))
    case("aten.bitwise_not.default", rand(5, dtype=torch.bool))
    case("aten.bitwise_not.default", ints(-9, 9, 5))
    case("aten.logical_and.default", rand(5, dtype=torch.bool), ints(0, 2, 5))
    case("aten.logical_not.default", ints(0, 2, 5))
    for op in ("neg", "abs", "relu", "sign", "floor", "ceil", "trunc", "round", "square"):
        case(f"aten.{op}.default", edge)
        case(f"aten.{op}.default", rand(7, dtype=torch.bfloat16))
    case("aten.neg.default", ints(-9, 9, 5, dtype=torch.int32))
    # torch's vectorised sqrt is one unit off for some inputs; ours is correctly rounded.
    for op, ulps in (("exp", 2), ("log", 2), ("sin", 2), ("cos", 2), ("rsqrt", 2), ("sqrt", 1), ("reciprocal", 0),
                     ("sigmoid", 4), ("silu", 5), ("tanh", 3)):
        inputs = [edge[(edge.abs() < 80) | ~edge.isfinite()] if op in ("silu", "sigmoid") else edge, rand(40, scale=4)]
        for x in inputs:
            case(f"aten.{op}.default", x, ulps=ulps)
        for dtype in (torch.bfloat16, torch.float16):
            case(f"aten.{op}.default", rand(4, 5, dtype=dtype, scale=2).t(), ulps=1)
        case(f"aten.{op}.default", rand(9, dtype=torch.float64).abs(), ulps=8)
    for dtype in (torch.float32, torch.bfloat16):
        # torch's derivative cancels near its zero at -1.28: an absolute bound
        case("aten.silu_backward.default", rand(4, 6, dtype=dtype), rand(4, 6, dtype=dtype), ulps=2, atol=1e-6)
        case("aten.sigmoid_backward.default", rand(9, dtype=dtype), rand(9, dtype=dtype).sigmoid(), ulps=2, atol=1e-6)
    case("aten.where.self", rand(3, 4, dtype=torch.bool), rand(3, 4), torch.tensor(NAN))
    case("aten.where.self", rand(4, dtype=torch.bool), ints(0, 9, 3, 4), torch.tensor(0))
    case("aten.where.ScalarOther", rand(4, dtype=torch.bool), rand(4), -INF)
    case("aten.masked_fill_.Scalar", ints(0, 9, 5), rand(5, dtype=torch.bool), 0)
    case("aten.masked_fill_.Scalar", strided(rand(3, 4)), rand(4, dtype=torch.bool), -INF)
    case("aten.clamp.default", edge, -1, 1)
    case("aten.clamp.default", ints(-9, 9, 9), 0, None)
    case("aten.add_.Tensor", strided(rand(3, 4)), rand(4))
    case("aten.add_.Tensor", rand(4), ints(0, 9, 4))
    case("aten.add_.Tensor", rand(4, dtype=torch.bfloat16), rand(4))
    case("aten.mul_.Tensor", rand(3, 4).t(), rand(3))
    case("aten.pow.Tensor_Scalar", rand(5), 2)


def activations():
    edge = torch.tensor([e for e in EDGES if not 80 < abs(e) < INF])
    for op, ulps in (("expm1", 2), ("log1p", 2), ("log2", 2), ("exp2", 2), ("erf", 2)):
        for x in (edge, rand(40, scale=4), rand(9, dtype=torch.float64).abs()):
            case(f"aten.{op}.default", x, ulps=ulps if x.dtype == torch.float32 else 4)
        case(f"aten.{op}.default", rand(4, 5, dtype=torch.bfloat16, scale=2).t(), ulps=1)
    case("aten.exp2.default", ints(-9, 9, 6))
    # torch adds 1 to erf or tanh, and so loses what is small for negative x: an absolute bound.
    finite = edge[edge.isfinite()]
    for dtype, atol in ((torch.float32, 1e-6), (torch.bfloat16, 1e-6), (torch.float64, 1e-14)):
        ulps = 1 if dtype == torch.bfloat16 else 4
        for approximate in ("none", "tanh"):
            for x in (finite.to(dtype), rand(6, 7, dtype=dtype, scale=3).t()):
                case("aten.gelu.default", x, approximate=approximate, ulps=ulps, atol=atol)
            grad, x = rand(40, dtype=dtype), rand(40, dtype=dtype, scale=3)
            case("aten.gelu_backward.default", grad, x, approximate=approximate, ulps=ulps, atol=atol)
        for beta, threshold in ((1, 20), (2.5, 3)):
            case("aten.softplus.default", rand(40, dtype=dtype, scale=5), beta, threshold, ulps=ulps, atol=1e-7)
            case("aten.softplus_backward.default", rand(40, dtype=dtype), rand(40, dtype=dtype, scale=5), beta, threshold,
                 ulps=ulps, atol=1e-7)
        x = rand(40, dtype=dtype, scale=5)
        out, saved = torch.ops.aten.log_sigmoid_forward.default(x)
        case("aten.log_sigmoid_forward.default", x, expect=out, ulps=ulps)
        case("aten.log_sigmoid_backward.default", rand(40, dtype=dtype), x, saved, ulps=ulps, atol=1e-7)
        case("aten.elu.default", rand(40, dtype=dtype, scale=3), 1.5, 1.25, 0.5, ulps=ulps, atol=1e-7)
    case("aten.softplus.default", edge, ulps=2)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.cat([edge, rand(9, scale=3)]).to(dtype)
        case("aten.hardtanh.default", x, -0.5, 2.0)
        # Of a NaN torch's CPU kernel makes 0, its GPU kernel the gradient, as ours.
        case("aten.hardtanh_backward.default", rand(len(x), dtype=dtype), x.nan_to_num(nan=2.0), -0.5, 2.0)
        case("aten.leaky_relu.default", x, 0.25)
        case("aten.nan_to_num.default", x)
        case("aten.nan_to_num.default", x, 1.0, 2.0, -3.0)
    case("aten.nan_to_num.default", ints(-9, 9, 4))
    case("aten.native_dropout_backward.default", rand(5, 4), rand(5, 4, dtype=torch.bool), 1.25)
    grid = torch.tensor([e for e in EDGES if abs(e) != 1e-40])
    case("aten.atan2.default", grid[:, None].contiguous(), grid[None, :].contiguous(), ulps=2)
    case("aten.atan2.default", ints(-3, 4, 9), ints(-3, 4, 9), ulps=2)
    case("aten.complex.default", rand(2, 3), rand(3))
    base = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.3, INF, -INF, NAN])
    for exponent in (0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 4.0, -3.0, 1.7, -0.25):
        case("aten.pow.Tensor_Scalar", base.abs() if exponent == -0.5 else base, exponent, ulps=2)
    case("aten.pow.Tensor_Scalar", ints(-3, 4, 6), 5)
    case("aten.pow.Tensor_Tensor", rand(5, 1).abs(), rand(4), ulps=2)
    case("aten.pow.Tensor_Tensor", ints(-3, 4, 6), ints(0, 6, 6))
    case("aten.pow.Scalar", 500000.0, rand(9).neg(), ulps=2)
    case("aten.pow.Scalar", 2, torch.arange(9))
    case("aten.pow_.Scalar", rand(6), 3)
    case("aten.logical_not_.default", rand(5, dtype=torch.bool))


def statistics():
    for t in (rand(5, 37, scale=3), rand(37, 5).t(), strided(rand(3, 40))):
        for dims in ([0], [1], [-1, 0], None):
            case("aten.var.correction", t, dims, correction=1, ulps=8, atol=1e-6)
            case("aten.std.correction", t, dims, correction=0, keepdim=True, ulps=8, atol=1e-6)
            case("aten.linalg_vector_norm.default", t, 2, dims, ulps=8)
    case("aten.var_mean.correction", rand(4, 9, dtype=torch.bfloat16), [1], correction=0, ulps=1, atol=1e-6)
    case("aten.var.correction", rand(3, 1), [1], correction=1)
    for order in (0, 1, 2, 3.5, INF, -INF):
        case("aten.linalg_vector_norm.default", rand(6, 20), order, [1], True, ulps=16)
    case("aten.linalg_vector_norm.default", rand(8, dtype=torch.bfloat16), 2, dtype=torch.float32, ulps=4)
    case("aten.logsumexp.default", rand(5, 30, scale=20), [1], ulps=4, atol=1e-6)
    case("aten.logsumexp.default", torch.tensor([[INF, 1.0], [-INF, -INF], [NAN, 1.0]]), [1], True)
    case("aten.prod.default", rand(3, 4), ulps=16)
    case("aten.prod.dim_int", ints(-4, 5, 4, 5), 1)
    case("aten.prod.dim_int", rand(0, 3), 0, True)
    case("aten.cumprod.default", rand(3, 6), -1, ulps=8)
    case("aten.cumprod.default", ints(-3, 4, 5), 0)
    case("aten.cummax.default", torch.tensor([[1.0, 3.0, 3.0, 2.0, NAN, 5.0], [-0.0, 0.0, -1.0, INF, INF, 1.0]]), 1)
    case("aten.cummax.default", ints(-4, 5, 4, 5), 0)
    for dtype, ulps, atol in ((torch.float32, 8, 2e-6), (torch.bfloat16, 2, 1e-5), (torch.float64, 16, 1e-14)):
        x, w, b, g = (rand(*s, dtype=dtype) for s in ((4, 3, 10), (3, 10), (3, 10), (4, 3, 10)))
        xd, wd, bd = (t.double().requires_grad_() for t in (x, w, b))
        y = F.layer_norm(xd, (3, 10), wd, bd, 1e-5)
        y.backward(g.double())
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        mean = xd.detach().mean((1, 2), True)
        rstd = (xd.detach().var((1, 2), correction=0, keepdim=True) + 1e-5).rsqrt()
        case("aten.native_layer_norm.default", args_full=[x, [3, 10], w, b, 1e-5],
             expect=(y.detach().to(dtype), mean.to(kept), rstd.to(kept)), ulps=ulps, atol=atol)
        case("aten.native_layer_norm_backward.default",
             args_full=[g, x, [3, 10], mean.to(kept), rstd.to(kept), w, b, [True, True, True]],
             expect=tuple(t.grad.to(dtype) for t in (xd, wd, bd)), ulps=ulps, atol=4 * atol)


def rearranging():
    t = rand(4, 6)
    for diagonal in (0, -2, 3, 9, -9):
        for op in ("tril", "triu"):
            case(f"aten.{op}.default", t, diagonal)
    case("aten.triu.default", rand(2, 5, 3, dtype=torch.bool).transpose(1, 2), 1)
    case("aten.roll.default", t, [2, -1], [0, 1])
    case("aten.roll.default", t.t(), [5])
    case("aten.roll.default", rand(0, 3), [1], [1])
    case("aten.slice_copy.Tensor", t, 1, -5, 100, 2)
    case("aten.slice_scatter.default", t, rand(4, 2), 1, 1, 5, 2)
    case("aten.slice_scatter.default", t, rand(0, 6), 0, 3, 1)
    case("aten.select_scatter.default", t, rand(4), 1, -2)
    case("aten.index_copy.default", t, 1, torch.tensor([3, 0]), rand(4, 2))
    case("aten.index_copy_.default", strided(t), 0, torch.tensor([3, 0]), rand(2, 6))
    case("aten.index_fill.int_Scalar", t, 1, torch.tensor([-1, 2]), 7.0)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            case("aten.scatter_reduce.two", ints(-4, 5, 4, 5), 1, ints(0, 3, 4, 6), ints(-4, 5, 4, 6), reduce,
                 include_self=include)
        case("aten.scatter_reduce.two", rand(4, 5), 0, ints(0, 4, 3, 5), rand(3, 5), reduce, ulps=2, atol=1e-6)
    case("aten.nonzero.default", ints(-1, 2, 3, 4))
    case("aten.nonzero.default", torch.tensor(3.0))
    case("aten.nonzero.default", torch.zeros(3, 2))
    case("aten.masked_select.default", t, rand(6, dtype=torch.bool))
    case("aten.masked_select.default", rand(3, 1), rand(3, 4, dtype=torch.bool))
    case("aten.one_hot.default", args_full=[(c := ints(0, 5, 2, 3)), 6], expect=F.one_hot(c, 6))
    case("aten.bincount.default", ints(0, 5, 12))
    case("aten.bincount.default", ints(0, 5, 12), None, 9)
    case("aten.bincount.default", ints(0, 5, 12), ints(-4, 5, 12).float())
    case("aten.histc.default", torch.tensor([0.0, 1.0, 1.0, 2.0, 7.0, -1.0, 3.0]), 4, 0, 4)
    case("aten.histc.default", ints(0, 8, 30).float(), 8)
    bounds = torch.tensor([-1.0, 0.0, 0.0, 2.0])
    values = torch.tensor([[-2.0, -1.0, 0.0], [1.0, 2.0, 3.0]])
    for right in (False, True):
        case("aten.bucketize.Tensor", values, bounds, right=right)
        case("aten.searchsorted.Tensor", torch.stack([bounds, bounds + 1]), values, right=right, out_int32=True)
    case("aten.searchsorted.Tensor", torch.tensor([1, 4, 9]), ints(0, 12, 5), side="right")
    case("aten.linspace.default", 0.0, 1.0, 7, ulps=1)
    case("aten.linspace.default", 3, -2, 1)
    case("aten.dot.default", ints(-4, 5, 9).float(), ints(-4, 5, 9).float())
    case("aten.baddbmm.default", rand(2, 3, 5), rand(2, 3, 4), rand(2, 4, 5), beta=0.5, alpha=2.0, ulps=4, atol=1e-6)


def movement():
    t = rand(4, 6)
    every = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8]
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, 2.5, 255.0, 65504.0, 65519.0, 65520.0, 1e-7, 6e-8, 2.9e-8, 3.389e38])
    for dtype in every:
        source = values if dtype.is_floating_point else values[2:7].abs()
        case("aten._to_copy.default", source, dtype=dtype)
        case("aten._to_copy.default", rand(5, dtype=dtype), dtype=torch.float32)
        case("aten._to_copy.default", rand(5, dtype=dtype), dtype=torch.bfloat16)
    case("aten._to_copy.default", torch.tensor([INF, -INF, NAN, 1.00390625, 1.01171875, 1e-40]), dtype=torch.bfloat16)
    case("aten._to_copy.default", torch.tensor([2**53 + 1, 2**24 + 1, -7]), dtype=torch.float32)
    case("aten.clone.default", t.t())
    case("aten.clone.default", rand(2, 3, dtype=torch.complex64))
    case("aten.copy_.default", strided(rand(3, 4)), rand(4, dtype=torch.bfloat16))
    case("aten.cat.default", [rand(2, 3), rand(0, 3), rand(4, 3)], 0)
    case("aten.cat.default", [rand(2, 3).t(), rand(3, 1)], -1)
    case("aten.cat.default", [rand(0), rand(2, 3)], 1)
    case("aten.cat.default", [ints(0, 9, 2), rand(2)], 0)
    case("aten.stack.default", [rand(2, 3), rand(2, 3)], 1)
    case("aten.constant_pad_nd.default", t, [1, 2, 0, 3], 7.0)
    case("aten.constant_pad_nd.default", t, [-1, -2], 0)
    case("aten.slice_backward.default", rand(4, 2), [4, 6], 1, 1, 5, 2)
    case("aten.select_backward.default", rand(4), [4, 6], 1, -2)
    case("aten.repeat.default", rand(2, 3), [2, 1, 2])
    case("aten.flip.default", rand(2, 3), [0, -1])
    case("aten.split_with_sizes_copy.default", t, [1, 0, 3], 0)
    case("aten.split_with_sizes_copy.default", t.t(), [2, 4], 0)
    case("aten.arange.default", 7)
    case("aten.arange.default", 2.5)
    case("aten.arange.start", 3, 9, dtype=torch.int32)
    case("aten.arange.start_step", 9, 2, -3)
    case("aten.arange.start_step", 0.0, 1.0, 0.25)
    case("aten.zeros.default", [2, 3], dtype=torch.bfloat16)
    case("aten.ones.default", [2], dtype=torch.bool)
    case("aten.full.default", [2, 2], 3)
    case("aten.full.default", [2], -INF)
    case("aten.scalar_tensor.default", 3, dtype=torch.float32)
    case("aten.new_zeros.default", t, [3], dtype=torch.int64)
    case("aten.new_ones.default", t, [], dtype=torch.bool)
    case("aten.zeros_like.default", t.t())
    case("aten.ones_like.default", t, dtype=torch.float64)
    case("aten.eye.m", 2, 3)


def views():
    t = rand(4, 6)
    v = lambda op, *a, **k: case(op, *a, is_view=True, **k)
    v("aten.view.default", t, [2, 2, -1])
    v("aten.view.default", t, [24])
    v("aten.view.default", t[:, 1:4], [2, 2, 3, 1])
    v("aten.view.default", rand(0, 3), [3, 0])
    v("aten.view.default", torch.tensor(3.0), [1, 1])
    v("aten.reshape.default", rand(2, 3, 4).transpose(0, 1), [3, 2, 2, 2])
    case("aten.reshape.default", t.t(), [3, 8])
    v("aten.expand.default", rand(3, 1), [2, -1, 4])
    v("aten.expand.default", rand(2, 1, 3), [2, 5, 3])
    v("aten.transpose.int", rand(2, 3, 4), -1, 0)
    v("aten.t.default", t)
    v("aten.permute.default", rand(2, 3, 4), [2, 0, -2])
    v("aten.squeeze.dim", rand(1, 3, 1), 0)
    v("aten.squeeze.dim", rand(1, 3, 1), 1)
    v("aten.squeeze.dims", rand(1, 3, 1), [0, -1])
    v("aten.unsqueeze.default", t, -1)
    v("aten.unsqueeze.default", t, 0)
    v("aten.slice.Tensor", t, 1, 1, 9223372036854775807, 2)
    v("aten.slice.Tensor", t, 0, -2, -1)
    v("aten.slice.Tensor", t, 0, 3, 1)
    v("aten.select.int", t, 1, -1)
    v("aten.split.Tensor", t, 4, 1)
    v("aten.split_with_sizes.default", t, [1, 0, 5], -1)
    v("aten.unbind.int", t, 1)
    v("aten.as_strided.default", t, [2, 2], [3, 2], 5)
    v("aten.view.dtype", t, torch.int32)
    v("aten.view.dtype", t, torch.bfloat16)
    v("aten.view.dtype", rand(3, 4, dtype=torch.bfloat16), torch.float32)
    v("aten.view_as_complex.default", rand(3, 2, 2))
    v("aten.view_as_real.default", rand(3, 2, dtype=torch.complex64))
    v("aten.diagonal.default", t, 1)
    v("aten.alias.default", t)


def sum_bound(t, n):
    return n * 2.0**-24 * float(t.double().abs().sum() if t.numel() else 0)


def reductions():
    for t in (rand(5, 37), rand(37, 5).t(), strided(rand(3, 40))):
        for dims in ([0], [1], [-1, 0]):
            case("aten.sum.dim_IntList", t, dims, True, expect=t.double().sum(dims, True).float(), atol=sum_bound(t, 40))
    case("aten.sum.default", rand(100), atol=1e-4)
    case("aten.sum.dim_IntList", rand(8, 9, dtype=torch.bfloat16), [0], ulps=1, atol=1e-5)
    case("aten.sum.dim_IntList", ints(-9, 9, 3, 4), [1])
    case("aten.sum.dim_IntList", rand(3, 4, dtype=torch.bool), [0])
    case("aten.sum.dim_IntList", rand(0, 4), [0])
    case("aten.sum.default", torch.tensor([INF, -INF, 1.0]))
    case("aten.sum.dim_IntList", rand(6, 5), [0], dtype=torch.float64, ulps=4)
    case("aten.mean.dim", rand(4, 33), [1], ulps=2, atol=1e-6)
    case("aten.amax.default", rand(4, 5), [-1], True)
    case("aten.amax.default", torch.tensor([[1.0, NAN, 3.0], [-0.0, 0.0, -INF]]), [1])
    case("aten.amin.default", ints(-9, 9, 4, 5), [0])
    case("aten.max.dim", torch.tensor([[1.0, 3.0, 3.0], [NAN, 1.0, NAN]]), 1)
    case("aten.argmax.default", torch.tensor([[1.0, 3.0, 3.0], [5.0, 1.0, 5.0]]), 1)
    for t in (torch.ones(3, 4).bool(), rand(3, 4, dtype=torch.bool), torch.zeros(0).bool()):
        case("aten.all.default", t)
        case("aten.any.default", t)
    case("aten.all.dim", rand(3, 4, dtype=torch.bool), 1)
    for dtype in (torch.int64, torch.int32, torch.bool):
        case("aten.cumsum.default", rand(3, 5, dtype=dtype), 1)
    case("aten.cumsum.default", ints(0, 9, 7), 0, dtype=torch.int32)
    case("aten.cumsum.default", rand(6, 3), 0, ulps=2, atol=1e-6)
    case("aten.cumsum.default", rand(0), 0)


def normalising():
    for dtype, ulps, atol in ((torch.float32, 8, 1e-6), (torch.bfloat16, 1, 1e-6), (torch.float64, 16, 1e-14)):
        for dim in (-1, 0):
            x, g = rand(5, 19, dtype=dtype, scale=3), rand(5, 19, dtype=dtype)
            case("aten._softmax.default", x, dim, False, ulps=ulps, atol=atol)
            case("aten._log_softmax.default", x, dim, False, ulps=ulps, atol=4 * atol)
            y = torch.softmax(x, dim)
            case("aten._softmax_backward_data.default", g, y, dim, dtype, ulps=2 * ulps, atol=4 * atol)
            case("aten._log_softmax_backward_data.default", g, torch.log_softmax(x, dim), dim, dtype, ulps=4 * ulps, atol=16 * atol)
    case("aten._softmax.default", torch.tensor([[1.0, -INF, 2.0], [-INF, -INF, -INF], [NAN, 1.0, 2.0]]), 1, False, ulps=2)
    for dtype in (torch.float32, torch.bfloat16):
        x, w, g = rand(4, 48, dtype=dtype), rand(48, dtype=dtype), rand(4, 48, dtype=dtype)
        xd, wd = x.double().requires_grad_(), w.double().requires_grad_()
        rstd = torch.rsqrt(xd.pow(2).mean(-1, keepdim=True) + 1e-5)
        y = xd * rstd * wd
        small = dtype == torch.float32
        case("aten._fused_rms_norm.default", args_full=[x, [48], w, 1e-5],
             expect=(y.to(dtype), rstd.float()), ulps=4 if small else 1, atol=1e-6)
        y.backward(g.double())
        case("aten._fused_rms_norm_backward.default", args_full=[g, x, [48], rstd.float(), w, [True, True]],
             expect=(xd.grad.to(dtype), wd.grad.to(dtype)), ulps=8 if small else 1, atol=4e-6)
    logp = torch.log_softmax(rand(6, 9), 1)
    target = torch.tensor([0, 8, -100, 3, 3, -100])
    for reduction in (0, 1, 2):
        case("aten.nll_loss_forward.default", logp, target, None, reduction, -100, ulps=2)
        grad = rand(6) if reduction == 0 else torch.tensor(0.7)
        case("aten.nll_loss_backward.default", grad, logp, target, None, reduction, -100, torch.tensor(4.0), ulps=1)
    case("aten.nll_loss_forward.default", logp, target, rand(9).abs(), 1, -100, ulps=3)


def products():
    def mm(a, b, op="aten.mm.default"):
        exact = a.double() @ b.double()
        bound = (a.shape[-1] + 1) * 2.0**-24 * float((a.double().abs() @ b.double().abs()).max() if exact.numel() else 0)
        case(op, a, b, expect=exact.to(a.dtype), ulps=0 if a.dtype == torch.float32 else 1, atol=bound)
    for m, k, n in ((1, 1, 1), (9, 33, 7), (3, 70, 40), (17, 4, 65)):
        mm(rand(m, k), rand(k, n))
        mm(rand(m, k, dtype=torch.bfloat16), rand(k, n, dtype=torch.bfloat16))
    mm(rand(6, 5).t(), rand(4, 6).t())
    mm(strided(rand(3, 5)), strided(rand(5, 4)))
    mm(rand(3, 0), rand(0, 4))
    mm(rand(0, 3), rand(3, 4))
    mm(rand(2, 3, 5), rand(2, 5, 4), "aten.bmm.default")
    case("aten.mm.default", ints(-3, 3, 4, 5).float(), ints(-3, 3, 5, 6).float())  # exact in any order
    case("aten.mm.default", rand(3, 20, dtype=torch.float64), rand(20, 3, dtype=torch.float64), atol=1e-13)
    case("aten.addmm.default", rand(4), rand(3, 5), rand(5, 4), ulps=4, atol=1e-5)
    bf = torch.bfloat16

    def grouped(a, b, offs):
        ends = offs.tolist() if offs is not None else None
        ad, bd = a.double(), b.double()
        spans = list(zip([0] + ends[:-1], ends)) if ends else None
        if a.dim() == 2 and b.dim() == 3:
            out = torch.zeros(a.shape[0], b.shape[2], dtype=torch.float64)
            for g, (s, e) in enumerate(spans):
                out[s:e] = ad[s:e] @ bd[g]
        elif a.dim() == 3 and b.dim() == 2:
            out = torch.zeros(a.shape[1], b.shape[1], dtype=torch.float64)
            for g, (s, e) in enumerate(spans):
                out[:, s:e] = ad[g] @ bd[:, s:e]
        elif a.dim() == 2:
            out = torch.stack([ad[:, s:e] @ bd[s:e] for s, e in spans])
        else:
            out = ad @ bd
        case("aten._grouped_mm.default", args_full=[a, b, offs, None, None], expect=out.to(a.dtype), ulps=1, atol=1e-4)
    offs = torch.tensor([3, 3, 8], dtype=torch.int32)  # an empty group, and rows behind the last offset
    grouped(rand(10, 16, dtype=bf), rand(3, 16, 8, dtype=bf), offs)
    grouped(rand(10, 16, dtype=bf), rand(3, 8, 16, dtype=bf).transpose(-2, -1), offs)
    grouped(rand(16, 10, dtype=bf).t().contiguous().t(), rand(10, 8, dtype=bf), offs)
    grouped(rand(3, 16, 8, dtype=bf), rand(8, 10, dtype=bf), offs)
    grouped(rand(2, 4, 8, dtype=bf), rand(2, 8, 5, dtype=bf), None)


def indexing():
    t = rand(6, 5)
    rows, columns = torch.tensor([5, 0, -1, 0]), torch.tensor([1, 1, 4, 1])
    case("aten.index.Tensor", t, [rows])
    case("aten.index.Tensor", t.t(), [None, rows])
    case("aten.index.Tensor", t, [rows, columns])
    case("aten.index.Tensor", rand(6, 3, 5), [rows, None, columns])
    case("aten.index.Tensor", rand(3, 6, 5, 2), [None, rows[:, None], columns])
    case("aten.index.Tensor", ints(0, 9, 7, dtype=torch.int32), [torch.tensor(3, dtype=torch.int32)])
    case("aten.index.Tensor", t, [t[:, 0] > 0])
    case("aten.index.Tensor", t, [torch.empty(0, dtype=torch.int64)])
    small = torch.tensor([1.0, 2.0, 4.0, 8.0])
    for op in ("aten.index_put.default", "aten.index_put_.default"):
        case(op, torch.zeros(6), [rows], small, True)
        case(op, rand(6, 5), [torch.tensor([1, 3])], rand(2, 5), False)
        case(op, rand(6, 5), [torch.tensor([1, 3]), torch.tensor([0, 4])], rand(2))
        case(op, strided(torch.zeros(6, 5)), [rows], ints(-4, 4, 4, 5).float(), True)
        case(op, torch.zeros(6, 5, dtype=torch.bfloat16), [rows], ints(-4, 4, 4, 5).bfloat16(), True)
    case("aten.index_put.default", torch.zeros(6, dtype=torch.int64), [rows], ints(0, 9, 4), True)
    case("aten.index_put.default", rand(4), [rand(4, dtype=torch.bool)], torch.tensor(0.0))
    case("aten.index_select.default", ints(0, 9, 6), 0, torch.tensor([5, 0, 0]))
    case("aten.index_select.default", t, 1, torch.tensor([4, 0]))
    case("aten.gather.default", t, 1, ints(0, 5, 6, 3))
    case("aten.gather.default", t.t(), -1, ints(0, 6, 2, 4))
    case("aten.gather.default", rand(1, 6, 2, 2, dtype=torch.complex64), 1, ints(0, 6, 1, 3, 2, 2))
    case("aten.scatter_.value", torch.zeros(4, 5, dtype=torch.bool), -1, ints(0, 5, 4, 2), True)
    case("aten.scatter.src", t, 0, torch.tensor([[0, 1, 2, 3, 4]]), rand(2, 5))
    case("aten.scatter_add.default", torch.zeros(4, 5), -1, ints(0, 5, 4, 3), ints(-4, 4, 4, 3).float())
    case("aten.scatter_add.default", torch.zeros(2, 5), 0, ints(0, 2, 4, 5), ints(-4, 4, 4, 5).float())
    index, source = ints(0, 3, 6, 4), ints(-4, 4, 6, 4).bfloat16()
    base = ints(-4, 4, 3, 4).bfloat16()
    case("torchtitan.deterministic_scatter_add.default", args_full=[base, index, source],
         expect=base.scatter_add(0, index, source))
    case("aten.index_add.default", torch.zeros(4, 3), 0, torch.tensor([3, 0, 3]), ints(-4, 4, 3, 3).float())
    case("aten.embedding.default", rand(7, 3, dtype=torch.bfloat16), ints(0, 7, 2, 4))
    for scale in (False, True):
        case("aten.embedding_dense_backward.default", ints(-4, 4, 6, 3).float(), torch.tensor([1, 1, 4, 2, 0, 2]), 7, 0, scale)
    case("aten.repeat_interleave.Tensor", torch.tensor([2, 0, 3, 1]))
    case("aten.repeat_interleave.Tensor", torch.tensor([2, 0, 3, 1]), output_size=6)
    case("aten.sort.stable", torch.tensor([3, 1, 3, 0, 1]), stable=True)
    case("aten.sort.stable", torch.tensor([[1.0, NAN, -0.0, 0.0, -INF], [2.0, 2.0, NAN, INF, 2.0]]), stable=True, dim=-1)
    case("aten.sort.stable", rand(4, 3), stable=True, dim=0, descending=True)
    distinct = torch.randperm(24, generator=GEN).reshape(3, 8).float()
    case("aten.topk.default", distinct, 3, -1, True)
    case("aten.topk.default", distinct, 2, 0, False)
    ties = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0], [5.0, 5.0, 5.0, 5.0, 5.0]])  # the lower index first
    case("aten.topk.default", args_full=[ties, 3, -1, True, True],
         expect=(torch.tensor([[2.0, 2.0, 2.0], [5.0, 5.0, 5.0]]), torch.tensor([[1, 2, 4], [0, 1, 2]])))


def buckets():
    ins = [rand(3, 2), rand(4)]
    rank, size = 1, 3
    out = torch.zeros(10 * size, dtype=torch.bfloat16)
    out[10:20] = torch.cat([x.flatten() for x in ins]).bfloat16()
    # What the other ranks will fill is not compared: see the test.
    CASES.append({"op": "bucketing._pre_bucket_all_gather.default", "only": [10, 20],
                  "args": [encode(a) for a in (ins, size, torch.bfloat16, [1, 1], rank, None)],
                  "results": [encode_tensor(out)]})
    args = [rand(4, 3), rand(2), rand(3, 2)]
    case("bucketing._pre_bucket_reduce_scatter.default", args_full=[args, 2, None],
         expect=torch._chunk_cat(args, 0, 2).flatten())


def attention():
    for dtype, ulps in ((torch.float32, 0), (torch.bfloat16, 1)):
        q, k, v, g = rand(1, 4, 7, 8, dtype=dtype), rand(1, 2, 7, 8, dtype=dtype), rand(1, 2, 7, 6, dtype=dtype), rand(1, 4, 7, 6, dtype=dtype)
        for causal in (False, True):
            qd, kd, vd = (x.double().requires_grad_() for x in (q, k, v))
            s = qd @ kd.repeat_interleave(2, 1).transpose(-2, -1) * 0.3
            if causal:
                s = s.masked_fill(~torch.ones(7, 7).tril().bool(), -INF)
            lse = s.logsumexp(-1)
            y = s.softmax(-1) @ vd.repeat_interleave(2, 1)
            y.backward(g.double())
            out = y.detach().to(dtype)
            case("aten._scaled_dot_product_flash_attention.default", args_full=[q, k, v, 0.0, causal, False, 0.3],
                 expect=(out, lse.detach().float()), ulps=ulps, atol=2e-6)
            grads = tuple(x.grad.to(dtype) for x in (qd, kd, vd))
            case("aten._scaled_dot_product_flash_attention_backward.default",
                 args_full=[g, q, k, v, out, lse.detach().float(), None, None, 7, 7, 0.0, causal, None, None, 0.3],
                 expect=grads, ulps=2 * ulps, atol=1e-5 if dtype == torch.float32 else 4e-2)
            case("aten._scaled_dot_product_cudnn_attention.default",
                 args_full=[q, k, v, None, True, 0.0, causal, False, 0.3], expect=(out,), ulps=ulps, atol=2e-6)
            case("aten._scaled_dot_product_cudnn_attention_backward.default",
                 args_full=[g, q, k, v, out, lse.detach().float(), None, None, None, None, None, 7, 7, 0.0, causal, 0.3],
                 expect=grads, ulps=2 * ulps, atol=1e-5 if dtype == torch.float32 else 4e-2)


def more_activations():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        ulps = 1 if dtype == torch.bfloat16 else 4
        grad, x = rand(6, 7, dtype=dtype), rand(6, 7, dtype=dtype, scale=3)
        for operand, is_result in ((x, False), (torch.ops.aten.elu.default(x, 1.5, 1.25, 0.5), True)):
            case("aten.elu_backward.default", grad, 1.5, 1.25, 0.5, is_result, operand, ulps=2 * ulps, atol=1e-6)
            case("aten.elu_backward.default", grad.t(), 1, 1, 1, is_result, operand.t(), ulps=2 * ulps, atol=1e-6)
        edge = torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN], dtype=dtype)
        case("aten.leaky_relu_backward.default", rand(7, dtype=dtype), edge, 0.25, False)
        case("aten.leaky_relu_backward.default", grad, x, -0.5, False)
        case("aten.logaddexp.default", edge[:, None].contiguous(), edge[None, :].contiguous(), ulps=ulps)
        case("aten.logaddexp.default", x, rand(7, dtype=dtype, scale=30), ulps=ulps, atol=1e-6)


def biased_attention():
    """Scaled dot product with a bias or a mask, by every entry point that takes one."""
    for dtype, ulps in ((torch.float32, 0), (torch.bfloat16, 1)):
        q, k, v, g = (rand(1, 2, rows, 4, dtype=dtype) for rows in (3, 5, 5, 3))
        dropped = torch.ones(3, 5).tril(1).bool()
        for bias in (rand(1, 2, 3, 5, dtype=dtype), rand(1, 2, 1, 5, dtype=dtype), dropped):
            qd, kd, vd = (x.double().requires_grad_() for x in (q, k, v))
            s = qd @ kd.transpose(-2, -1) * 0.3
            s = s.masked_fill(~bias, -INF) if bias.dtype == torch.bool else s + bias.double()
            lse = s.logsumexp(-1)
            y = s.softmax(-1) @ vd
            y.backward(g.double())
            out, rows = y.detach().to(dtype), lse.detach().float()
            forward = {"ulps": 4 * ulps, "atol": 4e-6 if dtype == torch.float32 else 1e-2}
            backward = {"ulps": 4 * ulps, "atol": 1e-5 if dtype == torch.float32 else 4e-2}
            grads = tuple(x.grad.to(dtype) for x in (qd, kd, vd))
            none = [None] * 2
            case("aten._scaled_dot_product_cudnn_attention.default",
                 args_full=[q, k, v, bias, True, 0.0, False, False, 0.3], expect=(out,), **forward)
            case("aten._scaled_dot_product_cudnn_attention_backward.default",
                 args_full=[g, q, k, v, out, rows, *none, bias, *none, 3, 5, 0.0, False, 0.3], expect=grads, **backward)
            case("aten._scaled_dot_product_efficient_attention.default",
                 args_full=[q, k, v, bias, True, 0.0, False, 0.3], expect=(out,), **forward)
            mask = [True, True, True, False]
            case("aten._scaled_dot_product_efficient_attention_backward.default",
                 args_full=[g, q, k, v, bias, out, rows, *none, 0.0, mask, False, 0.3], expect=grads, **backward)
            case("aten._scaled_dot_product_fused_attention_overrideable.default",
                 args_full=[q, k, v, bias, 0.0, False, False, 0.3], expect=(out,), **forward)
            case("aten._scaled_dot_product_fused_attention_overrideable_backward.default",
                 args_full=[g, q, k, v, bias, mask, out, rows, *none, 3, 5, 0.0, False, *none, 0.3], expect=grads, **backward)
            case("aten._scaled_dot_product_flash_attention_for_cpu.default",
                 args_full=[q, k, v, 0.0, False, bias, 0.3], expect=(out, rows), **forward)
            case("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
                 args_full=[g, q, k, v, out, rows, 0.0, False, bias, 0.3], expect=grads, **backward)
        # torch's own kernel of that name
        case("aten._scaled_dot_product_flash_attention_for_cpu.default", q, k, v, 0.0, True, **forward)


def gates():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        ulps, atol = (1, 1e-6) if dtype == torch.bfloat16 else (8, 1e-6)
        x = torch.cat((rand(12, dtype=dtype, scale=3), torch.tensor([0.0, -0.0, 3.0, -3.0, 7.0, -7.0], dtype=dtype)))
        for name in ("hardswish", "hardsigmoid", "mish"):
            case(f"aten.{name}.default", x, ulps=ulps, atol=atol)
            case(f"aten.{name}.default", rand(5, 7, dtype=dtype).t(), ulps=ulps, atol=atol)
            case(f"aten.{name}_backward.default", rand(len(x), dtype=dtype), x, ulps=ulps, atol=atol)
        case("aten.hardswish_.default", rand(5, 7, dtype=dtype), ulps=ulps, atol=atol)
        case("aten.mish_.default", rand(5, 7, dtype=dtype), ulps=ulps, atol=atol)
        wide = rand(2, 4, 6, dtype=dtype)
        for dim in (1, -1):
            half = rand(2, 2, 6, dtype=dtype) if dim == 1 else rand(2, 4, 3, dtype=dtype)
            case("aten.glu.default", wide, dim, ulps=ulps, atol=atol)
            case("aten.glu_backward.default", half, wide, dim, ulps=2 * ulps, atol=4 * atol)
        case("aten.glu.default", strided(wide), 1, ulps=ulps, atol=atol)


def losses():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        ulps, atol = (2, 1e-2) if dtype == torch.bfloat16 else (8, 1e-6)
        x, t = rand(3, 5, dtype=dtype, scale=2), rand(3, 5, dtype=dtype)
        for reduction in (0, 1, 2):
            grad = rand(3, 5, dtype=dtype) if reduction == 0 else rand(1, dtype=dtype)[0].clone()
            bounds = {"ulps": 4 * ulps, "atol": 8 * atol if reduction else atol}
            case("aten.mse_loss.default", x, t, reduction, **bounds)
            case("aten.mse_loss.default", x.t(), t.t(), reduction, **bounds)
            case("aten.mse_loss_backward.default", grad, x, t, reduction, **bounds)
            for number in (1.0, 0.25):
                for name in ("smooth_l1_loss", "huber_loss"):
                    case(f"aten.{name}.default", x, t, reduction, number, **bounds)
                    case(f"aten.{name}_backward.default", grad, x, t, reduction, number, **bounds)
            if dtype == torch.bfloat16:
                continue
            p, y = torch.sigmoid(x), torch.rand(3, 5, generator=GEN, dtype=torch.float64).to(dtype)
            p[0, :2] = torch.tensor([0.0, 1.0])
            for weight in (None, rand(5, dtype=dtype).abs()):
                case("aten.binary_cross_entropy.default", p, y, weight, reduction, **bounds)
                full = None if weight is None else weight.expand(3, 5).contiguous()
                case("aten.binary_cross_entropy_backward.default", grad, p, y, full, reduction, **bounds)
                for positive in (None, rand(5, dtype=dtype).abs() + 1):
                    case("aten.binary_cross_entropy_with_logits.default", x, y, weight, positive, reduction, **bounds)


def number_forms():
    """Ops on a tensor and a number, and those that write their first argument."""
    edge = torch.tensor(EDGES)
    for dtype in FLOATS:
        x = rand(3, 4, dtype=dtype)
        ulps = 1 if dtype in (torch.bfloat16, torch.float16) else 2
        # torch rounds the product to 16 bits before it adds; it is at most 8.
        bound = {"ulps": ulps, "atol": {torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(dtype, 2e-6)}
        for number in (2, -0.75):
            for op in ("add", "sub", "rsub"):
                case(f"aten.{op}.Scalar", x, number)
                case(f"aten.{op}.Scalar", x, number, 2.5, **bound)
            for op in ("add_", "sub_"):
                case(f"aten.{op}.Scalar", x.clone(), number, 3, **bound)
            for op in ("mul", "mul_", "div", "div_"):
                case(f"aten.{op}.Scalar", x.clone(), number)
            # A weight is divided at a half.
        for weight in (-0.5, 0.0, 0.25, 0.5, 0.75, 1.0):
            for op in ("lerp", "lerp_"):
                case(f"aten.{op}.Scalar", x.clone(), rand(3, 4, dtype=dtype), weight, ulps=ulps, atol=1e-6)
        case("aten.lerp.Tensor", x, rand(4, dtype=dtype), rand(3, 1, dtype=dtype), ulps=ulps, atol=1e-6)
        case("aten.sub_.Tensor", x.clone(), rand(4, dtype=dtype))
        case("aten.sub_.Tensor", x.clone(), rand(4, dtype=dtype), alpha=-2.5, **bound)
        case("aten.rsub.Tensor", x, rand(4, dtype=dtype), alpha=-2.5, **bound)
        case("aten.rsub.Tensor", x, rand(4, dtype=dtype))
        case("aten.div_.Tensor", x.clone(), rand(3, 1, dtype=dtype))
        for value in (1, -0.5, 3.0):
            for op in ("addcmul", "addcmul_"):
                case(f"aten.{op}.default", x.clone(), rand(3, 1, dtype=dtype), rand(4, dtype=dtype), value=value, **bound)
            for op in ("addcdiv", "addcdiv_"):
                divisor = rand(4, dtype=dtype).abs() + 1
                case(f"aten.{op}.default", x.clone(), rand(3, 1, dtype=dtype), divisor, value=value, **bound)
        y = torch.cat([rand(9, dtype=dtype).tanh(), torch.tensor([0.0, 1.0, -1.0], dtype=dtype)])
        case("aten.tanh_backward.default", rand(12, dtype=dtype), y, ulps=ulps, atol=1e-6)
        for threshold in (0, 0.5):
            z = torch.cat([rand(9, dtype=dtype), torch.tensor([0.5, 0.0, -0.0], dtype=dtype)])
            case("aten.threshold_backward.default", rand(12, dtype=dtype), z, threshold)
        for op, other in (("exp_", 2), ("sigmoid_", 4), ("silu_", 5), ("sqrt_", 1)):
            case(f"aten.{op}.default", rand(3, 4, dtype=dtype).abs(),
                 ulps=1 if ulps == 1 else other if dtype == torch.float32 else 8)
        for op in ("relu_", "neg_"):
            case(f"aten.{op}.default", torch.cat([rand(4, dtype=dtype), torch.tensor([0.0, -0.0, NAN], dtype=dtype)]))
        for low, high in ((-0.5, 0.75), (None, 0.25), (-0.25, None)):
            case("aten.clamp_.default", x.clone(), low, high)
    for op in ("isinf", "isnan"):
        for dtype in FLOATS:
            case(f"aten.{op}.default", edge.to(dtype))
        case(f"aten.{op}.default", ints(-9, 9, 4))
    low, high = torch.tensor([-1.0, NAN, 0.5, -INF]), torch.tensor([1.0, 0.0, 0.5, INF])
    case("aten.clamp.Tensor", edge[:, None].contiguous(), low, high)
    case("aten.clamp.Tensor", edge[:, None].contiguous(), low)
    case("aten.clamp.Tensor", edge[:, None].contiguous(), None, high)
    case("aten.clamp.Tensor", ints(-9, 9, 3, 4), ints(-3, 0, 4), ints(0, 4, 3, 1))
    for op, bound in (("clamp_max", high), ("clamp_min", low)):
        case(f"aten.{op}.Tensor", edge[:, None].contiguous(), bound)
        case(f"aten.{op}.default", edge, 0.5)
        case(f"aten.{op}.default", ints(-9, 9, 6), -1)
    for name in ("Scalar_mode", "Tensor_mode"):
        for mode in (None, "floor", "trunc"):
            for other in (3, -3):
                for x in (ints(-20, 20, 9), rand(9, scale=9), rand(9, dtype=torch.bfloat16, scale=9)):
                    y = other if name == "Scalar_mode" else torch.full((9,), other, dtype=x.dtype)
                    case(f"aten.div.{name}", x, y, rounding_mode=mode)
            if name == "Tensor_mode":
                finite = edge[(edge.abs() > 1e-30) & (edge.abs() < 1e30)]
                case(f"aten.div.{name}", finite[:, None].contiguous(), finite, rounding_mode=mode)
    for dtype in (torch.int64, torch.int32):
        numbers, others = ints(-20, 21, 12, dtype=dtype), ints(1, 6, 12, dtype=dtype) * torch.tensor([1, -1] * 6, dtype=dtype)
        for other in (4, -7):
            case("aten.floor_divide.Scalar", numbers, other)
            case("aten.fmod.Scalar", numbers, other)
        case("aten.fmod.Tensor", numbers, others)
        case("aten.remainder.Tensor", numbers, others)
        for op in ("__lshift__", "__rshift__"):
            case(f"aten.{op}.Scalar", numbers, 3)
        for op in ("bitwise_left_shift", "bitwise_right_shift"):
            case(f"aten.{op}.Tensor", numbers, ints(0, 5, 12, dtype=dtype))
        for op in ("__and__", "__or__", "bitwise_and_", "bitwise_or_"):
            case(f"aten.{op}.Tensor", numbers.clone(), ints(-20, 21, 12, dtype=dtype))
        for op in ("bitwise_and", "bitwise_or"):
            case(f"aten.{op}.Scalar", numbers, 6)
            case(f"aten.{op}.Scalar", numbers, -3)
    for op in ("__and__", "__or__", "bitwise_and_", "bitwise_or_"):
        case(f"aten.{op}.Tensor", rand(3, 4, dtype=torch.bool), rand(4, dtype=torch.bool))
    for dtype in FLOATS:
        numbers, others = rand(8, dtype=dtype, scale=9), rand(8, dtype=dtype, scale=3)
        for other in (2.5, -1.5):
            case("aten.floor_divide.Scalar", numbers, other)
            case("aten.fmod.Scalar", numbers, other)
        case("aten.fmod.Tensor", numbers, others)
        case("aten.remainder.Tensor", numbers, others)
    truths = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for op in ("logical_and_", "logical_or", "logical_xor"):
        name = f"aten.{op}.default"
        case(name, truths[0].clone(), truths[1])
        case(name, rand(3, 4, dtype=torch.bool), ints(-1, 2, 4))
        case(name, ints(-1, 2, 3, 4), rand(4))
        case(name, torch.tensor([0.0, -0.0, NAN, 2.0]), torch.tensor([0, 1, 0, 1]))
    for name in ("masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Tensor"):
        for dtype, number in ((torch.float32, -INF), (torch.bfloat16, 0.1), (torch.int64, 7)):
            value = number if name.endswith("Scalar") else torch.tensor(number, dtype=dtype)
            case(f"aten.{name}", rand(3, 4, dtype=dtype), rand(4, dtype=torch.bool), value)
    case("aten.masked_fill.Scalar", rand(4), rand(3, 1, dtype=torch.bool), 0.5)
    condition = torch.tensor([True, False, True])
    case("aten.where.Scalar", condition, 1.5, -2.0)
    case("aten.where.Scalar", condition, 3, 4)
    case("aten.where.ScalarSelf", condition, 1.5, rand(2, 3))
    case("aten.where.ScalarSelf", condition, 3, ints(0, 9, 2, 3))
    case("aten.conj_physical.default", rand(2, 3, dtype=torch.complex64))
    case("aten.conj_physical.default", rand(3))
    # Of 0.0 and -0.0 torch takes one or the other, as the layout is.
    for op in ("maximum", "minimum"):
        case(f"aten.{op}.default", strided(rand(3, 4)), rand(4))
    case("aten.pow_.Scalar", rand(6, dtype=torch.bfloat16), 3, ulps=1)
    refuse("aten.floor_divide.Scalar", ints(1, 9, 4), 0)
    refuse("aten.remainder.Tensor", ints(1, 9, 4), torch.tensor([1, 0, 1, 1]))
    refuse("aten.fmod.Tensor", ints(1, 9, 4), torch.tensor([1, 0, 1, 1]))
    refuse("aten.pow.Tensor_Scalar", ints(1, 9, 4), -1)
    refuse("aten.add.Tensor", rand(3), rand(4))


def copies_and_views():
    t = rand(4, 6)
    for op in ("ao.offload.default", "ao.reload.default"):  # torch has them on a GPU only
        for x in (t, t.t(), rand(3, dtype=torch.bfloat16), rand(0, 2), ints(0, 9, 1)):
            case(op, args_full=[x] + [None] * (3 * op.endswith("reload.default")), expect=x)
    case("ao.wait_tensor.default", args_full=[t, None, None], expect=t, is_view=True)
    for x in (t, t.t(), strided(rand(3, 2)), rand(0, 3), rand(1), torch.tensor(2.5), rand(4, dtype=torch.bfloat16), ints(0, 9, 3)):
        for op in ("detach", "detach_", "lift", "lift_fresh", "resolve_conj"):
            case(f"aten.{op}.default", x.clone() if op == "detach_" else x, is_view=True)
        case("aten.lift_fresh_copy.default", x)
        case("aten.squeeze.default", x, is_view=True)
    for x in (rand(1, 3, 1), rand(1, 1), rand(1, 0, 2), rand(2, 1, 3).transpose(0, 2)):
        case("aten.squeeze.default", x, is_view=True)
    wave = rand(2, 3, dtype=torch.complex64)
    for op in ("real", "imag"):
        case(f"aten.{op}.default", wave, is_view=True)
        case(f"aten.{op}.default", wave.t(), is_view=True)
    case("aten.real.default", t, is_view=True)
    for op in ("_reshape_copy", "view_copy", "_unsafe_view"):
        for x, sizes in ((t, [2, -1, 3]), (rand(0, 3), [3, 0]), (rand(1), []), (ints(0, 9, 6), [3, 2])):
            case(f"aten.{op}.default", x, sizes)
    case("aten._reshape_copy.default", t.t(), [4, 6])
    for op in ("chunk", "unsafe_chunk"):
        for parts, dim in ((2, 0), (3, 1), (4, -1), (5, 0), (1, -2)):
            case(f"aten.{op}.default", t, parts, dim, is_view=op == "chunk")
        case(f"aten.{op}.default", t.t(), 4, 0)
        case(f"aten.{op}.default", rand(0, 3), 2)
        case(f"aten.{op}.default", ints(0, 9, 7, dtype=torch.int32), 3)
    for sizes, dim in (([1, 0, 3], 0), ([2, 4], -1), ([6], 1)):
        case("aten.split.sizes", t, sizes, dim, is_view=True)
        case("aten.unsafe_split_with_sizes.default", t, sizes, dim)
        for x in (t, rand(6, 4, dtype=torch.bfloat16).t()):
            outs = [torch.zeros_like(p) for p in x.split(sizes, dim)]
            args = [x, sizes, dim, copied(outs)]
            torch.ops.aten.split_with_sizes_copy.out(x, sizes, dim, out=outs)
            case("aten.split_with_sizes_copy.out", args_full=args, expect=tuple(outs))
    case("aten.split.sizes", rand(0, 3), [0, 0], is_view=True)
    for size, dim in ((3, 0), (4, 1), (1, -2), (9, -1)):
        case("aten.unsafe_split.Tensor", t, size, dim)
    case("aten.unsafe_split.Tensor", t.t(), 4, 0)
    for dim, start, length in ((0, 1, 2), (-1, 2, 4), (1, -3, 2), (0, 4, 0)):
        case("aten.narrow.default", t, dim, start, length, is_view=True)
    case("aten.narrow.default", t.t(), 0, 1, 3, is_view=True)
    refuse("aten.narrow.default", t, 0, 3, 2)
    refuse("aten.split_with_sizes.default", t, [1, 2], 0)
    refuse("aten.view.default", t.t(), [24])
    refuse("aten.select.int", t, 0, 4)
    refuse("aten.cat.default", [rand(2, 3), rand(2, 4)], 0)
    refuse("aten.squeeze.dim", t, 2)
    case("aten.copy.default", rand(3, 4), rand(4))
    case("aten.copy.default", rand(4, 3, dtype=torch.bfloat16).t(), rand(3, 4))
    case("aten.copy.default", ints(0, 9, 3), torch.tensor([1.5, -1.5, 7.0]))
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        x = rand(3, 4, dtype=dtype)
        case("aten.fill.Scalar", x, 3)
        case("aten.fill_.Scalar", strided(x), 1)
        case("aten.fill_.Tensor", strided(x), torch.tensor(2))
        case("aten.zero_.default", strided(x))
        for to in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool):
            case("prims.convert_element_type.default", x, to)
        case("aten.full_like.default", x, 2)
        case("aten.new_full.default", x, [2, 3], 1)
    case("aten.fill.Scalar", rand(4), 0.1)
    case("aten.fill_.Scalar", rand(4, dtype=torch.bfloat16), 0.1)
    case("prims.convert_element_type.default", t.t(), torch.bfloat16)
    case("aten.full_like.default", t, 2.7, dtype=torch.int64)
    case("aten.new_full.default", t, [], -0.5, dtype=torch.bfloat16)
    case("aten.new_full.default", t, [0, 3], 2)
    for n in (0, 1, 4):
        case("aten.eye.default", n)
    case("aten.eye.default", 3, dtype=torch.int64)
    for dtype in (None, torch.bfloat16, torch.int64):  # what is in them is nobody's
        case("aten.empty.memory_format", [2, 0, 3], dtype=dtype, has_values=False)
        case("aten.empty_like.default", t, dtype=dtype, has_values=False)
        case("aten.new_empty.default", t, [5], dtype=dtype, has_values=False)
        case("aten.empty_strided.default", [2, 3], [1, 2], dtype=dtype, has_values=False)
        case("aten.new_empty_strided.default", t, [2, 3], [4, 1], dtype=dtype, has_values=False)
    case("aten.empty.memory_format", [], has_values=False)
    for x in (rand(0, 2), rand(1)):
        case("aten.empty_like.default", x, has_values=False)
        case("aten.new_empty.default", x, [3], has_values=False)
        case("aten.new_empty_strided.default", x, [1, 2], [5, 3], has_values=False)
    case("aten.new_empty.default", ints(0, 9, 2), [2, 1], has_values=False)


def more_reductions():
    ties = torch.tensor([[1.0, 3.0, 3.0, -2.0], [5.0, 1.0, NAN, NAN], [-0.0, 0.0, -INF, 1.0]])
    case("aten.argmin.default", torch.tensor([[1.0, 3.0, 1.0], [5.0, 5.0, 7.0]]), 1)
    for keepdim in (False, True):
        for dim in (0, -1):
            case("aten.argmin.default", ties[:2, :2].contiguous(), dim, keepdim)
            case("aten.min.dim", ties, dim, keepdim)
            for op in ("all", "any"):
                case(f"aten.{op}.dim", rand(3, 4, dtype=torch.bool), dim, keepdim)
                case(f"aten.{op}.dim", ints(-1, 2, 3, 4), dim, keepdim)
        for dims in ([0], [-1, 0], [1], None):
            for op in ("all", "any"):
                case(f"aten.{op}.dims", rand(3, 4, dtype=torch.bool), dims, keepdim)
                case(f"aten.{op}.dims", ints(0, 2, 2, 3), dims, keepdim)
                case(f"aten.{op}.dims", torch.tensor([[0.0, -0.0], [NAN, 0.0]]), dims, keepdim)
    case("aten.argmin.default", ties)
    case("aten.argmin.default", ints(-9, 10, 7))
    case("aten.argmin.default", rand(3, 4, dtype=torch.bfloat16).t(), 0)
    case("aten.min.dim", ints(-4, 5, 3, 4), 1)
    case("aten.min.dim", rand(4, 3, dtype=torch.bfloat16).t(), -2)
    for op in ("any", "all"):
        case(f"aten.{op}.dims", torch.zeros(0, 3).bool(), [0])
        case(f"aten.{op}.dim", torch.zeros(2, 0).bool(), 1)
        case(f"aten.{op}.dim", strided(rand(3, 4, dtype=torch.bool)), 0)
    for x in (ties, ties[0], ints(-9, 9, 3, 4), rand(1), rand(4, 3, dtype=torch.bfloat16).t(), torch.tensor(3.0)):
        case("aten.max.default", x)
    refuse("aten.max.default", rand(0))
    refuse("aten.min.dim", rand(2, 0), 1)
    refuse("aten.argmin.default", rand(2, 0), 1)
    for dtype, ulps in ((torch.float32, 2), (torch.bfloat16, 1), (torch.float64, 8)):
        for x in (rand(6, 7, dtype=dtype), rand(6, 7, dtype=dtype).t(), strided(rand(3, 4, dtype=dtype))):
            case("aten.mean.default", x, ulps=ulps, atol=1e-6)
        case("aten.cumsum_.default", rand(3, 4, dtype=dtype), -1, ulps=ulps, atol=1e-6)
    case("aten.mean.default", rand(6, dtype=torch.bfloat16), dtype=torch.float32, ulps=2, atol=1e-6)
    case("aten.mean.default", rand(0))
    case("aten.mean.default", torch.tensor(-2.5))
    case("aten.cumsum_.default", strided(ints(-9, 9, 3, 4)), 0)
    case("aten.cumsum_.default", rand(0), 0)
    case("aten.cumsum_.default", ints(0, 9, 5, dtype=torch.int32), 0)
    mixed = torch.tensor([[1.0, NAN, -1.0, 0.0, -INF], [2.0, 7.0, -3.0, INF, 2.5]])
    for descending in (False, True):
        for x, dim in ((mixed, -1), (mixed.t(), 0), (ints(-50, 50, 4, 5).unique()[:9], 0), (rand(0), 0), (rand(2, 1), 1), (rand(3, 0), 1)):
            case("aten.sort.default", x, dim, descending)
            case("aten.argsort.default", x, dim, descending)
            case("aten.argsort.stable", x, stable=True, dim=dim, descending=descending)
    case("aten.argsort.stable", rand(4, 5).t(), stable=True, dim=0)
    case("aten.sort.default", torch.randperm(9, generator=GEN).bfloat16())
    case("aten.argsort.default", torch.randperm(9, generator=GEN).int())
    case("aten._assert_async.default", torch.tensor(True))
    case("aten._assert_async.default", torch.tensor([2.0]))
    case("aten._assert_async.msg", torch.tensor(1), "never said")
    refuse("aten._assert_async.default", torch.tensor(False))
    refuse("aten._assert_async.msg", torch.tensor([0.0]), "said")
    for dtype, ulps, atol in ((torch.float32, 4, 1e-5), (torch.bfloat16, 1, 1e-4), (torch.float64, 8, 1e-13)):
        case("aten.mv.default", rand(3, 20, dtype=dtype), rand(20, dtype=dtype), ulps=ulps, atol=atol)
        case("aten.mv.default", rand(5, 3, dtype=dtype).t(), strided(rand(5, dtype=dtype)), ulps=ulps, atol=atol)
    case("aten.mv.default", rand(0, 3), rand(3))
    case("aten.mv.default", rand(3, 0), rand(0))
    case("aten.mv.default", rand(1, 1), rand(1), ulps=1)
    refuse("aten.mv.default", rand(2, 3), rand(2))
    refuse("aten.mm.default", rand(2, 3), rand(2, 3))
    refuse("aten.bmm.default", rand(2, 3, 4), rand(3, 4, 5))


def more_indexing():
    t, rows = rand(6, 5), torch.tensor([5, 0, -1, 0])
    case("aten._unsafe_index.Tensor", t, [rows])
    case("aten._unsafe_index.Tensor", t.t(), [None, rows])
    case("aten._unsafe_index.Tensor", t, [rows, torch.tensor([1, 1, 4, 1])])
    case("aten._unsafe_index.Tensor", t, [torch.empty(0, dtype=torch.int64)])
    case("aten._unsafe_index.Tensor", rand(6, dtype=torch.bfloat16), [torch.tensor(2)])
    op = "aten._unsafe_index_put.default"
    case(op, torch.zeros(6), [rows], torch.tensor([1.0, 2.0, 4.0, 8.0]), True)
    case(op, t, [torch.tensor([1, 3])], rand(2, 5), False)
    case(op, strided(torch.zeros(6, 5)), [rows], ints(-4, 4, 4, 5).float(), True)
    case(op, torch.zeros(6, 5, dtype=torch.bfloat16), [rows], ints(-4, 4, 4, 5).bfloat16(), True)
    case(op, t, [torch.empty(0, dtype=torch.int64)], rand(0, 5))
    for target in (torch.zeros(4, 3), strided(ints(-4, 5, 4, 3)), torch.zeros(4, 3, dtype=torch.bfloat16)):
        source = ints(-4, 5, 3, 3).to(target.dtype)
        case("aten.index_add_.default", target.clone(), 0, torch.tensor([3, 0, 3]), source)
        case("aten.index_add_.default", target.clone(), -1, torch.tensor([2, 1]), ints(-4, 5, 4, 2).to(target.dtype), alpha=2)
        case("aten.index_add.default", target, 1, torch.tensor([2, 1]), ints(-4, 5, 4, 2).to(target.dtype), alpha=-3)
    case("aten.index_add_.default", rand(4, 3), 0, torch.empty(0, dtype=torch.int64), rand(0, 3))
    index = torch.tensor([[0, 1, 2, 3, 4], [5, 5, 0, 1, 2]])
    for x in (t, ints(-9, 9, 6, 5), rand(5, 6, dtype=torch.bfloat16).t()):
        case("aten.scatter.value", x, 0, index, 3)
        case("aten.scatter.value", x, -1, index[:, :3] % 5, -2)
        case("aten.scatter_.src", x.clone(), 0, index[:1], rand(2, 5).to(x.dtype))
        case("aten.scatter_.src", x.clone(), -1, torch.tensor([[4], [0], [2]]), rand(3, 2).to(x.dtype))
        case("aten.scatter_add_.default", x.clone(), 0, index, ints(-4, 5, 2, 5).to(x.dtype))
        case("aten.scatter_add_.default", torch.zeros_like(x), -1, index[:, :4] % 2, ints(-4, 5, 3, 5).to(x.dtype))
    nothing = torch.empty(0, 5, dtype=torch.int64)
    case("aten.scatter.value", t, 0, nothing, 3)
    case("aten.scatter_.src", t.clone(), 0, nothing, rand(2, 5))
    case("aten.scatter_add_.default", t.clone(), 0, nothing, rand(2, 5))
    refuse("aten.index_select.default", t, 0, torch.tensor([6]))
    refuse("aten.gather.default", t, 1, torch.tensor([[5]]))
    refuse("aten.scatter.value", t, 0, torch.tensor([[6]]), 1)
    refuse("aten.index.Tensor", t, [torch.tensor([-7])])
    refuse("aten.embedding.default", t, torch.tensor([6]))
    refuse("aten.topk.default", t, 6, 1)


def edge_sizes():
    """No element and one, where `vary` cannot derive it from another case."""
    close = {"ulps": 8, "atol": 1e-6}
    none, one = torch.empty(0, dtype=torch.int64), torch.tensor([0])
    for rows in (0, 1):
        x = rand(rows, 1)
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            case("aten.bmm.default", rand(rows, 1, 3, dtype=dtype), rand(rows, 3, 1, dtype=dtype), ulps=4, atol=1e-2)
        case("aten.bmm.default", rand(2, 3, rows), rand(2, rows, 4), **close)
        index = one[:rows]
        case("aten.index_select.default", rand(1, 1), 0, index)
        case("aten.index_put_.default", rand(1), [index], rand(rows), False)
        case("aten._unsafe_index_put.default", rand(1), [index], rand(rows), True)
        case("aten.index_add.default", rand(1), 0, index, rand(rows))
        case("aten.index_add_.default", rand(1), 0, index, rand(rows))
        case("aten.index_copy.default", rand(1), 0, index, rand(rows))
        case("aten.index_copy_.default", rand(1), 0, index, rand(rows))
        case("aten.scatter.src", rand(1), 0, index, rand(rows))
        case("aten.scatter_.src", rand(1), 0, index, rand(rows))
        case("aten.scatter_add.default", rand(1), 0, index, rand(rows))
        case("aten.scatter_reduce.two", rand(1), 0, index, rand(rows), "sum")
        case("torchtitan.deterministic_scatter_add.default", args_full=[(b := rand(1, 1)), index[:, None], (v := rand(rows, 1))],
             expect=b.scatter_add(0, index[:, None], v))
        case("aten.one_hot.default", args_full=[index, 2], expect=F.one_hot(index, 2))
        case("aten.reshape.default", x, [1, rows], is_view=True)
        case("aten.as_strided.default", rand(3), [rows, 1], [1, 1], 2, is_view=True)
        case("aten.narrow.default", x, 0, 0, rows, is_view=True)
        case("aten.select_backward.default", rand(rows), [1, rows], 0, 0)
        case("aten.slice_backward.default", rand(rows, 1), [1, 1], 0, 0, rows, 1)
        case("aten.select_scatter.default", rand(1, rows), rand(rows), 0, 0)
        case("aten.slice_scatter.default", rand(1, 1), rand(rows, 1), 0, 0, rows, 1)
        for op in ("split.sizes", "split_with_sizes.default"):
            case(f"aten.{op}", x, [rows], 0, is_view=True)
        for op in ("split_with_sizes_copy", "unsafe_split_with_sizes"):
            case(f"aten.{op}.default", x, [rows], 0)
        case("aten.split_with_sizes_copy.out", args_full=[x, [rows], 0, [torch.zeros_like(x)]], expect=(x,))
        case("aten.topk.default", rand(1, 1), rows, 1)
        case("aten.topk.default", rand(rows, 2), 1, 1)
        case("aten.glu.default", rand(rows, 2), 1, **close)
        case("aten.glu_backward.default", rand(rows, 1), rand(rows, 2), 1, **close)
        case("aten.view.dtype", x, torch.int32, is_view=True)
        case("aten.view_as_complex.default", rand(rows, 2), is_view=True)
        x, w, b = rand(rows, 3), rand(3), rand(3)
        if rows:
            out = torch.ops.aten.native_layer_norm.default(x, [3], w, b, 1e-5)
            case("aten.native_layer_norm.default", x, [3], w, b, 1e-5, **close)
            case("aten.native_layer_norm_backward.default", rand(rows, 3), x, [3], *out[1:], w, b, [True, True, True], ulps=8, atol=4e-6)
        rstd = torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-5)
        case("aten._fused_rms_norm.default", args_full=[x, [3], w, 1e-5], expect=((x * rstd * w).float(), rstd.float()), **close)
        q, k, v = rand(1, 1, 1, 4), rand(1, 1, 1, 4), rand(1, 1, 1, 2)
        # One key: the softmax is 1.
        expect = (v.clone(), (q * k).sum(-1) * 0.5)
        case("aten._scaled_dot_product_flash_attention.default", args_full=[q, k, v, 0.0, bool(rows), False, 0.5], expect=expect, **close)
    out, saved = torch.ops.aten.log_sigmoid_forward.default(torch.tensor([-2.0]))
    case("aten.log_sigmoid_forward.default", torch.tensor([-2.0]), expect=out, ulps=4)
    case("aten.log_sigmoid_forward.default", rand(0), expect=rand(0))
    for op in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"):
        number = [1.0] if op[0] in "sh" else []
        p = rand(0, 2).abs()
        weight = [None] if op[0] == "b" else []
        for reduction in (0, 1, 2):
            grad = p if reduction == 0 else torch.tensor(0.5)
            case(f"aten.{op}_backward.default", grad, p, p, *weight, reduction, *number)
    case("aten.nll_loss_backward.default", rand(0), rand(0, 3), none, None, 0, -100, torch.tensor(0.0))
    case("aten.nll_loss_forward.default", rand(1, 1), one, None, 0, -100)


# ---- the same calls of other layouts, sizes and dtypes -----------------------------------------


def written_in_place():
    for op, ulps in (("abs", 0), ("ceil", 0), ("floor", 0), ("round", 0), ("cos", 2), ("sin", 2), ("tanh", 3), ("reciprocal", 0)):
        case(f"aten.{op}_.default", rand(4, 5, scale=2), ulps=ulps)
    for op in ("log", "rsqrt"):
        case(f"aten.{op}_.default", rand(4, 5).abs(), ulps=2)
    case("aten.abs_.default", ints(-9, 9, 5))
    for op in ("clamp_min_", "clamp_max_"):
        case(f"aten.{op}.default", rand(3, 4), 0.25)
        case(f"aten.{op}.default", ints(-9, 9, 5), 2)
    case("aten.clamp_min_.Tensor", rand(3, 4), rand(4))
    case("aten.logical_or_.default", rand(3, 4, dtype=torch.bool), rand(4, dtype=torch.bool))
    case("aten.lerp_.Tensor", rand(3, 4), rand(3, 4), rand(4), ulps=1, atol=1e-6)
    case("aten.hardtanh_.default", rand(3, 4, scale=2), -0.5, 1.5)
    case("aten.leaky_relu_.default", rand(3, 4), 0.25)


def more_functions():
    edge = torch.tensor(EDGES)
    case("aten.sgn.default", edge)
    case("aten.sgn.default", ints(-3, 4, 6))
    products = torch.tensor([0.0, -0.0, 2.0, -1.5, INF, NAN])
    case("aten.xlogy.Tensor", products[:, None].contiguous(), edge, ulps=4)
    for dtype in FLOATS:
        case("aten.xlogy.Tensor", rand(3, 5, dtype=dtype), rand(5, dtype=dtype).abs(), ulps=8 if dtype == torch.float64 else 4)
    case("aten.xlogy.Tensor", ints(0, 4, 6), ints(1, 9, 6), ulps=4)
    case("aten.polar.default", rand(3, 5).abs(), rand(5, scale=3), atol=1e-6)
    case("aten.polar.default", torch.ones(4, 3), rand(4, 3, scale=9), atol=1e-6)
    for t in (rand(3, 4), ints(-9, 9, 3, 4), torch.tensor([1.0, NAN, -2.0])):
        case("aten.min.default", t)
    refuse("aten.min.default", rand(0))
    masked = torch.tensor([[0.5, -INF, 2.0], [-INF, -INF, -INF], [-INF, NAN, 1.0], [INF, 0.0, 1.0]])
    for dim in (-1, 0):
        case("aten._safe_softmax.default", masked, dim, ulps=4, atol=1e-6)
    for dtype in FLOATS:
        x = rand(4, 3, 5, dtype=dtype, scale=4).masked_fill(rand(3, 1, dtype=torch.bool), -INF)
        case("aten._safe_softmax.default", x, 2, ulps=8 if dtype == torch.float64 else 4, atol=1e-6)
        case("aten._safe_softmax.default", x, 1, dtype=torch.float32, ulps=4, atol=1e-6)
    case("aten._safe_softmax.default", torch.tensor(-INF), 0)
    for sizes, layout in (([2, 3, 4], [2, 0, 1]), ([2, 0, 3], [1, 2, 0]), ([], [])):
        case("aten.empty_permuted.default", sizes, layout, has_values=False)
    case("aten.empty_permuted.default", [3, 2], [1, 0], dtype=torch.bfloat16, has_values=False)


def scattered_by_mask():
    op, back = "aten.masked_scatter.default", "aten.masked_scatter_backward.default"
    x, mask = rand(3, 5), rand(3, 5, dtype=torch.bool)
    for dtype in (*FLOATS, torch.int64):
        case(op, rand(3, 5, dtype=dtype), mask, rand(4, 4, dtype=dtype))
    case(op, rand(3), mask[:, :3].clone(), rand(9))
    case(op, x.t(), mask.t(), strided(rand(2, 8)))
    case(op, x, torch.zeros(3, 5, dtype=torch.bool), rand(0))
    case(op, rand(0, 3), rand(0, 3, dtype=torch.bool), rand(2))
    case(op, rand(2, 3, 4), rand(2, 3, 1, dtype=torch.bool), rand(24))
    refuse(op, x, torch.ones(3, 5, dtype=torch.bool), rand(14))
    refuse(op, x, mask, rand(15, dtype=torch.float64))
    for sizes in ([15], [4, 5]):
        case(back, x, mask, sizes)
    case(back, strided(x), strided(mask), [3, 5])
    case(back, x, rand(5, dtype=torch.bool), [20])
    case(back, rand(0, 5), rand(0, 5, dtype=torch.bool), [3])
    case(back, rand(1), torch.tensor([True]), [1])


def convolutions():
    # input, weight, (stride, padding, dilation, transposed, output_padding, groups)
    plain, wide = ([1], [0], [1], False, [0], 1), ([2], [1], [2], False, [0], 1)
    calls = [((2, 3, 7), (4, 3, 3), plain), ((2, 3, 9), (4, 3, 3), wide), ((2, 6, 8), (6, 1, 4), ([1], [3], [1], False, [0], 6)),
             ((2, 4, 5), (6, 2, 2), ([1], [1], [1], False, [0], 2)), ((2, 4, 5), (4, 3, 3), ([2], [1], [1], True, [1], 1)),
             ((2, 4, 5), (4, 3, 3), ([3], [0], [2], True, [0], 2)),
             ((2, 3, 8, 8), (5, 3, 4, 4), ([4, 4], [0, 0], [1, 1], False, [0, 0], 1)),
             ((3, 2, 5, 4), (4, 2, 3, 3), ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
             ((1, 2, 6, 5), (4, 2, 3, 2), ([2, 1], [1, 0], [1, 2], False, [0, 0], 1)),
             ((1, 4, 3, 2), (4, 2, 2, 2), ([2, 2], [0, 0], [1, 1], True, [0, 0], 1)),
             ((2, 2, 2, 4, 4), (3, 2, 2, 2, 2), ([2, 2, 2], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1))]
    for (size, kernel, numbers) in calls:
        x, w = rand(*size), rand(*kernel)
        made = torch.ops.aten.convolution.default(x, w, None, *numbers)
        case("aten.convolution.default", x, w, None, *numbers, ulps=16, atol=4e-6)
        case("aten.convolution.default", x, w, rand(made.shape[1]), *numbers, ulps=16, atol=4e-6)
        g = rand(*made.shape)
        for mask in ([True, True, True], [True, True, False], [False, True, False], [True, False, True]):
            grads = torch.ops.aten.convolution_backward.default(g, x, w, [made.shape[1]], *numbers, mask)
            case("aten.convolution_backward.default", g, x, w, [made.shape[1]], *numbers, mask,
                 expect=tuple(t if m else None for t, m in zip(grads, mask)), ulps=16, atol=2e-5)
    x, w, b = rand(2, 3, 7), rand(4, 3, 3), rand(4)
    for dtype, ulps, atol in ((torch.bfloat16, 2, 4e-2), (torch.float64, 16, 1e-13)):
        sides = [t.to(dtype) for t in (x, w, b)]
        case("aten.convolution.default", *sides, *wide, ulps=ulps, atol=atol)
        g = rand(2, 4, 3, dtype=dtype)
        case("aten.convolution_backward.default", g, *sides[:2], [4], *wide, [True, True, True], ulps=ulps, atol=4 * atol)
    case("aten.convolution.default", strided(x), strided(w), strided(b), *wide, ulps=16, atol=4e-6)
    case("aten.convolution_backward.default", strided(rand(2, 4, 3)), strided(x), strided(w), [4], *wide, [True] * 3, ulps=16, atol=2e-5)
    case("aten.convolution.default", rand(0, 3, 7), w, b, *wide)
    case("aten.convolution_backward.default", rand(0, 4, 3), rand(0, 3, 7), w, [4], *wide, [True] * 3)
    case("aten.convolution.default", rand(1, 1, 1), rand(1, 1, 1), rand(1), *plain, ulps=1, atol=1e-7)
    case("aten.convolution_backward.default", rand(1, 1, 1), rand(1, 1, 1), rand(1, 1, 1), [1], *plain, [True] * 3, ulps=1, atol=1e-7)
    refuse("aten.convolution.default", x, rand(4, 2, 3), None, *plain)
    refuse("aten.convolution.default", x, rand(4, 3, 9), None, *plain)
    refuse("aten.convolution.default", x, w, rand(3), *plain)
    refuse("aten.convolution.default", x, w, None, [0], [0], [1], False, [0], 1)
    refuse("aten.convolution_backward.default", rand(2, 4, 4), x, w, [4], *plain, [True] * 3)


def solves():
    """Behind all others, whose numbers stay as they are."""
    op = "aten.linalg_solve_triangular.default"
    for dtype in (torch.float32, torch.float64):
        bounds = {"ulps": 64, "atol": 1e-5 if dtype == torch.float32 else 1e-13}
        for size, columns in ((1, 1), (3, 2), (9, 5)):
            a = rand(size, size, dtype=dtype) * 0.3 + 2 * torch.eye(size, dtype=dtype)
            b = rand(size, columns, dtype=dtype)
            for upper in (False, True):
                for unit in (False, True):
                    case(op, a, b, upper=upper, unitriangular=unit, is_recorded=True, **bounds)
                    case(op, a.mT, b.mT.contiguous(), upper=upper, left=False, unitriangular=unit, **bounds)
        a = rand(2, 1, 4, 4, dtype=dtype) * 0.3 + 2 * torch.eye(4, dtype=dtype)
        case(op, a, rand(3, 4, 2, dtype=dtype), upper=False, is_recorded=True, **bounds)
        case(op, strided(a[0, 0]), strided(rand(2, 2, 4, dtype=dtype)), upper=True, left=False, **bounds)
    case(op, rand(0, 3, 3), rand(0, 3, 2), upper=True)
    case(op, rand(2, 0, 0), rand(2, 0, 3), upper=True)
    refuse(op, rand(3, 3), rand(2, 3), upper=True)
    refuse(op, rand(3, 2), rand(3, 2), upper=True)


def has_gaps(t):
    return t.numel() > 1 and not t.is_contiguous()


def call_again(done, args):
    """A case of the same op and bounds, if torch takes these arguments."""
    op = find(done.op)
    parameters = op._schema.arguments
    positional = [a for a, p in zip(args, parameters) if not p.kwarg_only]
    keywords = {p.name: a for a, p in zip(args, parameters) if p.kwarg_only}
    try:
        found = op(*copied(positional), **dict(zip(keywords, copied(list(keywords.values())))))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return
    results = found if isinstance(found, (list, tuple)) else [found]
    if any(not isinstance(r, torch.Tensor) or r.dtype == torch.complex128 for r in results):
        return  # no kernel here computes complex128
    case(done.op, *positional, **keywords, **done.bounds)


def relaid(done):
    return [each_tensor(a, strided) for a in done.args]


def resized(done, old, extent):
    """Dimensions of the extent `old` (None: all) get another."""
    def cut(t):
        for d in range(t.dim()):
            if t.shape[d] == old or old is None:
                t = t.narrow(d, 0, min(extent, t.shape[d]))
        return t.clone()
    return [each_tensor(a, cut) for a in done.args]


def retyped(done, dtype):
    """float32 as another float. A double's functions are a few units off in torch or here."""
    return [each_tensor(a, lambda t: t.to(dtype) if t.dtype == torch.float32 else t) for a in done.args]


def with_negative_dims(done):
    rank = done.args[0].dim() if isinstance(done.args[0], torch.Tensor) else done.args[0][0].dim()
    names = [p.name for p in find(done.op)._schema.arguments]

    def turn(name, v):
        if not name.startswith("dim") or v is None:
            return v
        return [turn(name, x) for x in v] if isinstance(v, (list, tuple)) else v - rank if v >= 0 else v
    return [turn(name, a) for name, a in zip(names, done.args)]


def composed():
    """Ops whose kernels are made of several formulas."""
    small = torch.tensor([0.0, -0.0, 1e-4, -1e-4, 0.3, -0.5, 0.99, 1.0, -1.0, 2.0, -3.0, 20.0, -88.0, 89.3, INF, -INF, NAN])
    inverse = torch.tensor([0.0, -0.0, 1e-4, -0.3, 0.5, 0.9999, 1.0, -1.0, 1.5, -2.0, INF, NAN])
    for op, edge in (("tan", small), ("atan", small), ("sinh", small), ("cosh", small), ("asin", inverse), ("acos", inverse)):
        case(f"aten.{op}.default", edge, ulps=4)
        case(f"aten.{op}.default", rand(4, 5).t(), ulps=4)
        case(f"aten.{op}.default", rand(3, 4, dtype=torch.float64), ulps=16)
        case(f"aten.{op}.default", strided(rand(3, 4, dtype=torch.bfloat16)), ulps=1)
        case(f"aten.{op}.default", rand(0, 3), ulps=4)
        case(f"aten.{op}.default", ints(-1, 2, 6), ulps=4)
    case("aten.frac.default", small)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        case("aten.frac.default", rand(4, 5, dtype=dtype, scale=9).t())
    case("aten.frac.default", strided(rand(3, 4)))
    case("aten.frac.default", rand(0, 3))
    ends = torch.tensor([1.0, NAN, 2.0, NAN, INF, -INF])
    others = torch.tensor([2.0, 3.0, NAN, NAN, NAN, 1.0])
    for op in ("fmax", "fmin"):
        case(f"aten.{op}.default", ends, others)
        case(f"aten.{op}.default", rand(4, 1, dtype=torch.bfloat16), rand(3, dtype=torch.bfloat16))
        case(f"aten.{op}.default", strided(rand(3, 4, dtype=torch.float64)), rand(3, 4, dtype=torch.float64))
        case(f"aten.{op}.default", ints(-9, 9, 3, 4), ints(-9, 9, 4))
        case(f"aten.{op}.default", rand(0, 3), rand(3))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        case("aten._prelu_kernel.default", rand(4, 3, dtype=dtype), rand(1, 3, dtype=dtype))
    case("aten._prelu_kernel.default", torch.tensor([[0.0, -0.0, NAN, INF, -INF]]), torch.tensor([[0.25]]))
    case("aten._prelu_kernel.default", strided(rand(3, 4)), rand(1, 1))
    case("aten._prelu_kernel.default", rand(0, 3), rand(1, 3))
    for dtype, ulps in ((torch.float32, 4), (torch.bfloat16, 2), (torch.float64, 16)):
        case("aten.logcumsumexp.default", rand(4, 9, dtype=dtype, scale=3), 1, ulps=ulps, atol=1e-6)
        case("aten.logcumsumexp.default", rand(9, 4, dtype=dtype).t(), -2, ulps=ulps, atol=1e-6)
    case("aten.logcumsumexp.default", strided(rand(3, 4)), -1, ulps=4, atol=1e-6)
    case("aten.logcumsumexp.default", torch.tensor([[-INF, -INF, 1.0, NAN, 2.0], [90.0, 91.0, -INF, INF, 1.0]]), 1, ulps=4)
    case("aten.logcumsumexp.default", rand(0, 3), 0)
    case("aten.logcumsumexp.default", rand(3, 0), 1)
    case("aten.logcumsumexp.default", rand(1, 4), 0)
    for dims in ([0], [1], [-1, 0], None):
        case("aten.std_mean.correction", rand(5, 7), dims, correction=0, ulps=8, atol=1e-6)
    case("aten.std_mean.correction", rand(7, 5).t(), [1], correction=1, keepdim=True, ulps=8, atol=1e-6)
    case("aten.std_mean.correction", strided(rand(3, 4, dtype=torch.float64)), [-1], correction=1, ulps=16, atol=1e-14)
    case("aten.std_mean.correction", rand(4, 9, dtype=torch.bfloat16), [1], correction=0, ulps=1, atol=1e-6)
    case("aten.std_mean.correction", rand(0, 3), [1], correction=0)
    for dim in (None, 0, -1):
        case("aten.aminmax.default", rand(4, 5), dim=dim)
    case("aten.aminmax.default", torch.tensor([[1.0, NAN], [INF, -INF]]), dim=1, keepdim=True)
    case("aten.aminmax.default", strided(rand(3, 4, dtype=torch.bfloat16)), dim=0)
    case("aten.aminmax.default", rand(4, 3, dtype=torch.float64).t(), dim=1)
    case("aten.aminmax.default", ints(-9, 9, 3, 4), dim=-2)
    case("aten.aminmax.default", rand(0, 3), dim=1)
    for op in ("tan", "atan", "sinh", "cosh", "asin", "acos"):
        case(f"aten.{op}.default", rand(1), ulps=4)
    case("aten.frac.default", rand(1, 1))
    for op in ("fmax", "fmin"):
        case(f"aten.{op}.default", rand(1), rand(1))
    case("aten._prelu_kernel.default", rand(1, 1), rand(1, 1))
    case("aten.logcumsumexp.default", rand(1, 1), 1)
    case("aten.std_mean.correction", rand(1, 1), [1], correction=0)
    case("aten.aminmax.default", rand(1, 1), dim=0)


def named_by_nothing():
    """What an empty list, a fraction, a negative number or a turned operand means."""
    for op in ("all", "any"):
        case(f"aten.{op}.dims", rand(3, 4, dtype=torch.bool), [])
        case(f"aten.{op}.dims", rand(4, 3).round().t(), [], True)
    case("aten.flip.default", rand(3, 4), [])
    truth = rand(2, 3, dtype=torch.bool)
    for number in (0.5, -0.5, 0.0, NAN):
        case("aten.fill.Scalar", truth, number)
        case("aten.fill_.Scalar", rand(3, dtype=torch.bool), number)
        case("aten.masked_fill.Scalar", truth, rand(2, 3, dtype=torch.bool), number)
        case("aten.full_like.default", truth, number)
        case("aten.new_full.default", truth, [3], number)
        case("aten.full.default", [3], number, dtype=torch.bool)
        case("aten.constant_pad_nd.default", truth, [1, 1], number)
        case("aten.scatter.value", truth, 1, ints(0, 3, 2, 2), number)
        case("aten.index_fill.int_Scalar", truth, 1, torch.tensor([0, 2]), number)
    bytes_of = torch.tensor([1, 253, 255, 4], dtype=torch.uint8)
    for op in ("ge", "gt", "le", "lt", "eq", "ne", "remainder", "fmod", "floor_divide"):
        case(f"aten.{op}.Scalar", bytes_of, -3)
        case(f"aten.{op}.Scalar", torch.tensor([1, 44, 45, -3], dtype=torch.int8), 300)
    for x, dim in ((rand(4, 3).t(), 0), (rand(4, 3).t(), 1), (strided(rand(3, 4)), -1)):
        case("aten.argsort.default", x, dim, is_recorded=True)
        case("aten.argsort.stable", x, stable=True, dim=dim, is_recorded=True)
    for start, end, steps in ((0, 10, 5), (-7, 7, 6), (3, 3, 4), (5, 0, 1), (0, 9, 0)):
        case("aten.linspace.default", start, end, steps, dtype=torch.int64)
        case("aten.linspace.default", start, end, steps, dtype=torch.int32)
    for reduction in (0, 1, 2):  # torch rounds to the target's dtype in the middle
        case("aten.binary_cross_entropy_with_logits.default", rand(3, 4), rand(3, 4).abs().clamp(max=1).bfloat16(),
             reduction=reduction, ulps=2, atol=1e-2)
    case("aten.logsumexp.default", ints(-9, 9, 3, 5), [1], ulps=4, atol=1e-6)
    case("aten.logsumexp.default", ints(-9, 9, 3, 5, dtype=torch.int32), [0], True, ulps=4, atol=1e-6)


def vary():
    """Per op the aspects that its cases lack: operands with gaps, no element, one, other floats, negative dims."""
    for op in dict.fromkeys(done.op for done in DONE):
        calls = [c for c in DONE if c.op == op]
        all_tensors = [t for c in calls for a in c.args for t in tensors_in(a)]
        if not all_tensors or not calls[0].bounds["has_values"]:
            continue
        size = lambda c: sum(t.numel() for a in c.args for t in tensors_in(a))
        full = [c for c in calls if all(t.numel() > 1 or t.dim() == 0 for a in c.args for t in tensors_in(a)) and size(c) > 1]
        if not full:
            continue
        by_torch = [c for c in full if c.expect is None]
        small = min(by_torch or full, key=size)
        writes = op.split(".")[1].endswith("_") or op.endswith(".out")
        if not any(has_gaps(t) for t in all_tensors):
            if by_torch:
                call_again(small, relaid(small))
            elif not writes and not small.bounds["is_view"]:
                case(op, args_full=relaid(small), expect=small.expect, **small.bounds)
        if not by_torch:
            continue
        dims = [p.name for p in find(op)._schema.arguments if p.name.startswith("dim")]
        if dims and with_negative_dims(small) != small.args:
            call_again(small, with_negative_dims(small))
        first = tensors_in(list(small.args))[0]
        for extent, olds in ((0, first.shape), (1, [None])):
            for old in olds:
                if not any(t.numel() == extent for c in DONE if c.op == op for a in c.args for t in tensors_in(a)):
                    call_again(small, resized(small, old, extent))
        seen = {t.dtype for t in all_tensors}
        if torch.float32 in seen:
            for dtype in (torch.bfloat16, torch.float64):
                like = [c for c in by_torch if any(t.dtype == torch.float32 for a in c.args for t in tensors_in(a))]
                if dtype not in seen and like and "attention" not in op:  # in float32 or 16 bits
                    base = min(like, key=size)
                    bounds = base.bounds | ({"ulps": 16} if dtype == torch.float64 and base.bounds["ulps"] else {})
                    call_again(base._replace(bounds=bounds), retyped(base, dtype))


def sums_of_numbers():
    """What is no number counts as 0."""
    op = "aten.nansum.default"

    def holes(*sizes, dtype=torch.float32):
        values = rand(*sizes, dtype=dtype)
        return torch.where(rand(*sizes) > 0.3, torch.full_like(values, NAN), values)

    for dims in (None, [0], [1], [-1, 0]):
        case(op, holes(5, 7), dims, ulps=4, atol=1e-6)
    case(op, holes(7, 5).t(), [-1], True, ulps=4, atol=1e-6)
    case(op, strided(holes(3, 4)), [-2], ulps=4, atol=1e-6)
    case(op, torch.tensor([[NAN, NAN], [INF, 1.0], [INF, -INF], [-0.0, NAN]]), [1])
    case(op, holes(4, 9, dtype=torch.bfloat16), [1], ulps=1, atol=1e-6)
    case(op, holes(4, 9, dtype=torch.float64), [1], ulps=16, atol=1e-14)
    case(op, holes(4, 9), [0], dtype=torch.float64, ulps=16, atol=1e-14)
    case(op, ints(-9, 9, 3, 4), [1])
    case(op, rand(0, 4), [0])
    case(op, rand(3, 0), [1])
    case(op, holes(1, 1), [1])


def more_composed():
    """Ops whose kernels are made of several formulas, of one operand and of two."""
    edges = torch.tensor([0.0, -0.0, 1e-30, -1e-5, 1e-4, -1e-3, 0.3, -0.5, 0.99, 1.0, -1.0, 1.5, 10.0, -3.0, 1000.0, 1e20, -1e38, INF, -INF, NAN])
    for op in ("log10", "acosh", "asinh", "atanh"):
        case(f"aten.{op}.default", edges, ulps=4)
        case(f"aten.{op}.default", rand(4, 5).t(), ulps=4)
        case(f"aten.{op}.default", rand(3, 4, dtype=torch.float64), ulps=16)
        case(f"aten.{op}.default", strided(rand(3, 4, dtype=torch.bfloat16)), ulps=1)
        case(f"aten.{op}.default", ints(0, 3, 6), ulps=4)
        case(f"aten.{op}.default", rand(0, 3))
        case(f"aten.{op}.default", rand(1), ulps=4)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        case("aten.signbit.default", edges.to(dtype)[:-1])
    case("aten.signbit.default", strided(rand(3, 4)))
    case("aten.signbit.default", ints(-3, 3, 2, 5).t())
    case("aten.signbit.default", rand(0, 3))
    case("aten.signbit.default", rand(1, 1))
    signs = torch.tensor([1.0, -1.0, 0.0, -0.0, INF, -INF])
    case("aten.copysign.Tensor", edges.unsqueeze(1), signs)
    case("aten.copysign.Tensor", rand(4, 1, dtype=torch.bfloat16), rand(3, dtype=torch.bfloat16))
    case("aten.copysign.Tensor", strided(rand(3, 4, dtype=torch.float64)), rand(3, 4, dtype=torch.float64))
    case("aten.copysign.Tensor", ints(-9, 9, 3, 4), ints(-9, 9, 4))
    case("aten.copysign.Tensor", rand(0, 3), rand(3))
    case("aten.copysign.Tensor", rand(1), rand(1))
    for number in (-2.0, -0.0, 0, 3):
        case("aten.copysign.Scalar", edges, number)
    case("aten.copysign.Scalar", strided(rand(3, 4)), -1)
    case("aten.copysign.Scalar", ints(-9, 9, 3, 4), -1.5)
    case("aten.copysign.Scalar", rand(0, 3), -1)
    case("aten.copysign.Scalar", rand(1, 1), -1)
    case("aten.hypot.default", edges[:-1].unsqueeze(1), torch.tensor([0.0, -2.0, 1e-30, 1e30, INF]), ulps=4)
    case("aten.hypot.default", edges, torch.ones(1), ulps=4)
    case("aten.hypot.default", rand(4, 1, dtype=torch.bfloat16), rand(3, dtype=torch.bfloat16), ulps=1)
    case("aten.hypot.default", strided(rand(3, 4, dtype=torch.float64)), torch.tensor([1e200, -3.0, 1e-200, 0.0], dtype=torch.float64), ulps=16)
    case("aten.hypot.default", rand(0, 3), rand(3))
    case("aten.hypot.default", rand(1), rand(1), ulps=4)
    for op in ("__lshift__", "__rshift__"):
        case(f"aten.{op}.Tensor", ints(0, 90, 3, 4), ints(0, 5, 4))
        case(f"aten.{op}.Tensor", ints(0, 90, 4, 3).t(), ints(0, 5, 3, 4))
        case(f"aten.{op}.Tensor", ints(0, 9, 0, 3), ints(0, 5, 3))
        case(f"aten.{op}.Tensor", ints(0, 9, 1), ints(0, 5, 1))
    case("aten.bitwise_xor.Scalar", ints(-9, 9, 3, 4), 6)
    case("aten.bitwise_xor.Scalar", strided(ints(-9, 9, 3, 4)), -1)
    case("aten.bitwise_xor.Scalar", rand(3, 4) > 0, True)
    case("aten.bitwise_xor.Scalar", ints(0, 9, 0, 3), 1)
    case("aten.bitwise_xor.Scalar", ints(0, 9, 1), 1)
    op = "aten.round.decimals"
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for decimals in (1, 3, 0, -1, -2):
            case(op, torch.tensor([0.0, -0.0, 0.05, 0.15, -0.25, 1.005, 14.9, -15.1, 25.0, 250.0, -1350.0, INF, -INF, NAN], dtype=dtype), decimals=decimals)
    case(op, strided(rand(3, 4, scale=30)), decimals=1)
    case(op, rand(4, 3, scale=300).t(), decimals=-2)
    for sizes in ((0, 3), (1,)):
        case(op, rand(*sizes), decimals=2)
    refuse(op, ints(0, 9, 3), decimals=1)


def write():
    global GEN
    GEN = torch.Generator().manual_seed(7)
    for family in (pointwise, movement, views, reductions, normalising, products, indexing, buckets, attention,
                   activations, statistics, rearranging, more_activations, gates, losses,
                   biased_attention, number_forms, copies_and_views, more_reductions, more_indexing, edge_sizes,
                   written_in_place, more_functions, convolutions, scattered_by_mask, vary):
        family()
    kernel_edge_cases.add(sys.modules[__name__])
    solves()
    composed()
    named_by_nothing()
    sums_of_numbers()
    more_composed()
    return "[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES) + "\n]\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", default=str(ROOT / "testdata/kernels/cases.json"))
    parser.add_argument("--check", metavar="FILE")
    options = parser.parse_args()
    text = write()
    if options.check:
        if pathlib.Path(options.check).read_text() != text:
            sys.exit(f"{options.check} is not what torch {torch.__version__} gives")
        return
    path = pathlib.Path(options.o)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"{len(CASES)} cases, {len(text)} bytes, {len({c['op'] for c in CASES})} ops", file=sys.stderr)


if __name__ == "__main__":
    main()
