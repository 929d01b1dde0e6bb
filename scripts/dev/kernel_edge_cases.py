"""Cases of scripts/dev/kernel_conformance.py that find one wrong formula each, by the source they are for.

scripts/dev/mutate_kernels.py makes the wrong formulas; docs/kernel_tests.md says how many are found.
"""
import math

import mpmath
import numpy
import torch
import torch.nn.functional as F

INF, NAN = math.inf, math.nan


def add(conformance):
    """Appends the cases. `conformance`: the module that writes them."""
    global case, refuse, rand, ints, find, encode, CASES
    case, refuse, rand, ints, find = (getattr(conformance, name) for name in ("case", "refuse", "rand", "ints", "find"))
    encode, CASES = conformance.encode, conformance.CASES
    conformance.GEN.manual_seed(14)
    for family in (numbers, powers, functions, sums, normalised, losses, factories, moved, indexed, found, statistics,
                   reduced, viewed, multiplied, attended, flex, tiled, placed, quantified, refined):
        family()


def refuse_by(op, args, call):
    """Torch refuses it, by a function of its own."""
    try:
        call()
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        CASES.append({"op": op, "args": [encode(a) for a in args], "results": [], "is_refused": True})
        return
    raise SystemExit(f"{op}: torch takes what it was said to refuse")


def numbers():  # math/element_ops.h
    zeros = torch.tensor([0.0, -0.0, 1.0, -1.0, 5.5, -7.0, INF, -INF, NAN])
    for dtype in (torch.float32, torch.float64):
        grid = zeros.to(dtype)[:, None].contiguous(), zeros.to(dtype)
        for op in ("floor_divide.default", "remainder.Tensor", "fmod.Tensor"):
            case(f"aten.{op}", *grid)
        for mode in ("floor", "trunc"):
            case("aten.div.Tensor_mode", *grid, rounding_mode=mode)
    whole = torch.tensor([6.0, -6.0, 7.0, -7.0, 1.0, -1.0])[:, None].contiguous(), torch.tensor([3.0, -3.0, 2.0, -2.0, 4.0, -4.0])
    case("aten.remainder.Tensor", *whole)
    case("aten.floor_divide.default", *whole)
    # The quotient is rounded below a whole number, by a quarter and by less.
    below = torch.tensor(rounded_below(), dtype=torch.float32)
    case("aten.floor_divide.default", below[:, 0].clone(), below[:, 1].clone())
    case("aten.div.Tensor", rand(3, 2, dtype=torch.complex64), rand(2, dtype=torch.complex64), atol=1e-6)
    case("aten.rsub.Tensor", rand(3, 2, dtype=torch.complex64), rand(2, dtype=torch.complex64), alpha=2, atol=1e-6)
    case("aten.abs.default", torch.tensor([3, 0, -4, -2**63]))
    for alpha in (1, -1, 2, -2):
        case("aten.add.Tensor", rand(6), rand(6), alpha=alpha, ulps=1, atol=1e-6)
    least = -2**63
    for dtype in (torch.int64, torch.int32):
        dividends = torch.tensor([7, -7, 0, 1, -1, 2, -2], dtype=dtype)[:, None].contiguous()
        divisors = torch.tensor([1, -1, -2, 2, 5], dtype=dtype)
        case("aten.div.Tensor_mode", dividends, divisors, rounding_mode="trunc")
        case("aten.div.Tensor_mode", dividends, divisors, rounding_mode="floor")
        case("aten.fmod.Tensor", dividends, divisors)
        case("aten.remainder.Tensor", dividends, divisors)
        counts = torch.tensor([-1, 0, 1, 31, 32, 62, 63, 64, 65, 200], dtype=dtype)
        shifted = torch.tensor([5, -5, 0, 1, -1, 2**30], dtype=dtype)[:, None].contiguous()
        case("aten.bitwise_left_shift.Tensor", shifted, counts)
        case("aten.bitwise_right_shift.Tensor", shifted, counts)
    # Torch's kernels stop the process here; what two's complement makes of it.
    case("aten.fmod.Tensor", args_full=[torch.tensor([least, 5]), torch.tensor([-1, -1])], expect=torch.tensor([0, 0]))
    far = torch.tensor([1e8, 1.0, 2.0]), torch.tensor([1.0, 16777218.0, 5.0])
    for weight in (1.0, 0.5, 0.25):
        case("aten.lerp.Scalar", *far, weight)
    case("aten.nan_to_num.default", torch.tensor([NAN, INF, -INF, 1.5], dtype=torch.float16))


def rounded_below():
    """Pairs of float32 of which (a - fmod(a, b)) / b is rounded below a whole number: by a quarter (quotients around
    2^21, where that is the spacing), and by one unit of the last place of a small one."""
    random = numpy.random.Generator(numpy.random.PCG64(3))
    found = []
    for low, high, wanted in ((2**21 + 1, 2**22 - 1, 3), (3, 100, 3)):
        count = 0
        while count < wanted:
            b = random.uniform(1, 2, 10000).astype(numpy.float32)
            a = (random.integers(low, high, 10000) * b + random.uniform(0, 1, 10000)).astype(numpy.float32)
            quotient = (a - numpy.fmod(a, b)) / b
            for i in numpy.nonzero(quotient - numpy.floor(quotient) > 0.5)[0][:wanted - count]:
                found.append((float(a[i]), float(b[i])))
                count += 1
    return found


def powers():
    case("aten.pow.Tensor_Tensor", torch.tensor([1, -1, -1, 2, -2, 3, 1]), torch.tensor([-1, -1, -2, -1, -3, -4, -2]))
    huge = torch.tensor([1e300, 3.7e-200, 1.7e150, 2.9], dtype=torch.float64)
    case("aten.pow.Tensor_Scalar", huge, 1.0)
    case("aten.pow.Tensor_Scalar", huge, -0.5, ulps=1)
    case("aten.pow.Tensor_Scalar", huge, 0.5, ulps=1)
    case("aten.pow.Tensor_Scalar", torch.tensor([1e150, 1e-100, 3.0, -7.5], dtype=torch.float64), -2.0, ulps=1)
    case("aten.pow.Tensor_Scalar", rand(6).abs() + 0.5, -0.75, ulps=2)
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1.2, -1.2, 0.8, INF, -INF, NAN, 3.7e13], dtype=torch.float64)
    y = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 31.0, 2.0**53, 2.0**64, 1e-305, INF, -INF, NAN], dtype=torch.float64)
    with numpy.errstate(all="ignore"):
        for dtype, ulps in ((torch.float64, 64), (torch.float32, 1)):
            a, b = x.to(dtype)[:, None].contiguous(), y.to(dtype)
            expect = torch.from_numpy(numpy.power(a.numpy().astype("float64"), b.numpy().astype("float64"))).to(dtype)
            case("aten.pow.Tensor_Tensor", args_full=[a, b], expect=expect, ulps=ulps)


def functions():  # math/special_functions.h
    double = lambda *values: torch.tensor(values, dtype=torch.float64)

    def exactly(op, function, *columns):
        """Arguments of which our functions give the nearest number; a wrong coefficient gives another one."""
        with mpmath.workprec(400):
            expect = [float(function(*map(mpmath.mpf, row))) for row in zip(*columns)]
        case(op, *[double(*c) for c in columns], expect=double(*expect), args_full=[double(*c) for c in columns])

    exactly("aten.expm1.default", mpmath.expm1, [1.6599485876420682e-16, 1.6598519369308846e-16])
    exactly("aten.log1p.default", mpmath.log1p, [-0.4907564710853755, -0.47206405163714765, 0.6645841529643673, 0.7315847178025153])
    exactly("aten.exp2.default", lambda x: mpmath.mpf(2)**x,
            [0.5562063765628282, 0.6744128964610636, 0.41594829552497914, 0.4119860726453153, 0.515341511565607, 0.508365530876917,
             0.5293313715313042, 0.5864163212597155, 0.5393412108380051, 0.5217099369304072, 0.50402667957797, 0.6221147284650361])
    exactly("aten.erf.default", mpmath.erf, [1.0156797433765603, 1.0007617473847672, 1.0072234523550785])
    exactly("aten.atan2.default", mpmath.atan2,
            [0.635577148612442, 0.6143148306305964, 0.7626874012988767, 0.6929443355383925, 1.439038054379464, 1.4423604108680963,
             1.0566001923986243, 1.673064903971428, 1.6772789877036387, 0.9875358378302469, 1.8518381266065427, 1.0159487331043786],
            [1.103240700058158, 1.0902264765058918, 1.1954105371709391, 1.0652022092579803, -0.8480454584352359, -0.8194535737094072,
             -0.5349326827979232, -0.8307097005461777, -1.0172886385165107, -0.7923903364802332, -2.6129051123139453, -1.6867529007282769])
    rows = [0.7020736271001591, 0.7444888849111212, 0.8357005072378361]
    with mpmath.workprec(400):
        expect = double(*[float(mpmath.log1p(mpmath.exp(mpmath.mpf(x)))) for x in rows])
    case("aten.softplus.default", args_full=[double(*rows), 1, 20], expect=expect)
    case("aten.log1p.default", double(-1.0, -1.05, -2.0, -0.438, -0.35, 0.39, 0.45, 1.5, 1e10, 1.8e16, 4.5e301, INF, -INF), ulps=4)
    with mpmath.workprec(400):
        values = double(5e-324, 7e-309, 1.7e-308, 2.2e-308, 3e-308, 7.97e307, 1.5)
        expect = double(*[float(mpmath.log(mpmath.mpf(x), 2)) for x in values.tolist()])
    case("aten.log2.default", args_full=[values], expect=expect, ulps=4)
    case("aten.gelu.default", torch.tensor([-60.0, -100.0, -1e30, 100.0]), atol=1e-6)
    case("aten.gelu.default", double(-60.0, -1e300, 50.0), atol=1e-14)
    for op in ("binary_cross_entropy", "binary_cross_entropy_backward"):
        p, t = double(2e-44, 1.3e-44, 1.0, 0.0, 0.25), double(1.0, 0.75, 0.0, 1.0, 0.5)
        grad = [torch.tensor(1.0, dtype=torch.float64).expand(5).contiguous()] * op.endswith("backward")
        case(f"aten.{op}.default", *grad, p, t, None, 0, ulps=8)


def sums():  # host/sum.h: more rows than lanes
    for rows, columns in ((20, 3), (37, 5)):
        x, g, w, b = rand(rows, columns), rand(rows, columns), rand(columns), rand(columns)
        out = torch.ops.aten.native_layer_norm.default(x, [columns], w, b, 1e-5)
        case("aten.native_layer_norm_backward.default", g, x, [columns], *out[1:], w, b, [True, True, True], ulps=8, atol=1e-4)
    case("aten.sum.default", rand(5, 7), dtype=torch.float64, ulps=8)
    case("aten.mean.dim", rand(5, 7), [1], dtype=torch.float64, ulps=8)
    case("aten.mean.dim", rand(5, 7, dtype=torch.bfloat16), [0], True, dtype=torch.float32, ulps=8, atol=1e-6)


def normalised():  # shared/kernels_normalise.cc
    for dtype, ulps in ((torch.bfloat16, 4), (torch.float16, 4), (torch.float32, 4), (torch.float64, 8)):
        x = rand(3, 8, dtype=dtype, scale=4e-4)  # the default epsilon counts
        case("aten._fused_rms_norm.default", x, [8], None, None, ulps=ulps, atol=1e-9)
        case("aten._fused_rms_norm.default", x, [8], rand(8, dtype=dtype), None, ulps=ulps, atol=1e-9)
    case("aten._softmax.default", rand(5), 0, False, ulps=4, atol=1e-6)
    case("aten._softmax.default", torch.tensor(2.5), 0, False)
    case("aten._log_softmax.default", torch.tensor(2.5), -1, False)
    case("aten._log_softmax.default", rand(1, 7), -2, False)
    x, g = rand(3, 16), rand(3, 16)  # rows that fill a block of memory
    for name, like in (("_softmax", torch.softmax(x, 1)), ("_log_softmax", torch.log_softmax(x, 1))):
        case(f"aten.{name}.default", x, 1, False, ulps=8, atol=4e-6)
        case(f"aten.{name}_backward_data.default", g, like, 1, torch.float32, ulps=16, atol=4e-6)
    x, g = rand(2, 3, 4, scale=2), rand(2, 3, 4)
    for shape in ([4], [3, 4]):
        for w in (None, rand(*shape)):
            dims = tuple(range(-len(shape), 0))
            xd, wd = x.double().requires_grad_(), (torch.ones(shape) if w is None else w).double().requires_grad_()
            rstd = torch.rsqrt(xd.pow(2).mean(dims, keepdim=True) + 1e-5)
            y = xd * rstd * wd
            y.backward(g.double())
            case("aten._fused_rms_norm.default", args_full=[x, shape, w, 1e-5], expect=(y.detach().float(), rstd.detach().float()),
                 ulps=8, atol=1e-6)
            for mask in ([True, True], [True, False], [False, True]):
                grads = (xd.grad.float() if mask[0] else None, wd.grad.float() if mask[1] and w is not None else None)
                case("aten._fused_rms_norm_backward.default", args_full=[g, x, shape, rstd.detach().float(), w, mask], expect=grads,
                     ulps=8, atol=4e-6)
    x, g = rand(3, 1, scale=2), rand(3, 1)
    rstd = torch.rsqrt(x.double().pow(2) + 1e-5).float()
    case("aten._fused_rms_norm_backward.default", args_full=[g, x, [1], rstd, torch.tensor([2.0]), [True, True]],
         expect=((2.0 * g.double() * rstd.double() * (1 - (x.double() * rstd.double())**2)).float(),
                 (g.double() * x.double() * rstd.double()).sum(0).float()), ulps=8, atol=1e-5)
    x, g, w, b = rand(3, 1), rand(3, 1), rand(1), rand(1)
    out = torch.ops.aten.native_layer_norm.default(x, [1], w, b, 1e-5)
    case("aten.native_layer_norm_backward.default", g, x, [1], *out[1:], w, b, [True, True, True], ulps=8, atol=1e-4)
    x, g, w, b = rand(4, 3), rand(4, 3), rand(3), rand(3)
    out = torch.ops.aten.native_layer_norm.default(x, [3], w, b, 1e-5)
    for weight, bias, mask in ((w, None, [True, True, False]), (None, None, [True, False, False]), (w, b, [False, True, False]),
                               (w, b, [False, False, True]), (None, b, [True, False, True])):
        grads = torch.ops.aten.native_layer_norm_backward.default(g, x, [3], *out[1:], weight, bias, mask)
        case("aten.native_layer_norm_backward.default", args_full=[g, x, [3], *out[1:], weight, bias, mask],
             expect=tuple(t if m else None for t, m in zip(grads, mask)), ulps=8, atol=4e-6)


def losses():
    x = torch.log_softmax(rand(6, 4), 1)
    target = torch.tensor([0, 3, -100, 1, 1, 2])
    for reduction in (0, 1, 2):
        grad = rand(6) if reduction == 0 else torch.tensor(0.7)
        case("aten.nll_loss_backward.default", grad, x, target, rand(4).abs(), reduction, -100, torch.tensor(3.0), ulps=1)
    case("aten.log_sigmoid_forward.default", rand(3, 4, scale=3), is_recorded=True, ulps=4, atol=1e-7)
    x = rand(4, 3, scale=3)
    turned = [r.t().contiguous().t() for r in torch.ops.aten.log_sigmoid_forward.default(x)]
    case("aten.log_sigmoid_forward.default", x, expect=tuple(turned), is_recorded=True, ulps=4, atol=1e-7)


def factories():  # kernels_factory.cc
    t = rand(4, 6)
    for dtype in (torch.bfloat16, torch.int32):
        for op, args in (("zeros.default", ([2, 3],)), ("ones.default", ([2, 3],)), ("full.default", ([2, 3], 3)),
                         ("zeros_like.default", (t,)), ("ones_like.default", (t,)), ("full_like.default", (t, 3)),
                         ("new_zeros.default", (t, [2, 3])), ("new_ones.default", (t, [2, 3])), ("new_full.default", (t, [2, 3], 3)),
                         ("scalar_tensor.default", (3,)), ("eye.default", (3,)), ("eye.m", (2, 3)), ("arange.default", (7,)),
                         ("arange.start", (3, 7)), ("arange.start_step", (3, 12, 4))):
            case(f"aten.{op}", *args, dtype=dtype)
    torch.set_default_dtype(torch.float64)  # a graph records it
    for op, args in (("zeros.default", ([2, 3],)), ("ones.default", ([2, 3],)), ("full.default", ([2, 3], 0.1)), ("eye.m", (2, 3)),
                     ("arange.start_step", (0.0, 1.0, 0.25)), ("scalar_tensor.default", (0.1,))):
        case(f"aten.{op}", *args, is_recorded=True)
    torch.set_default_dtype(torch.float32)
    for op, args in (("empty.memory_format", ([2, 3],)), ("new_empty.default", (t, [2, 3])), ("empty_like.default", (t,)),
                     ("empty_strided.default", ([2, 3], [1, 2]))):
        case(f"aten.{op}", *args, has_values=False)
    for span in ((9, 3, -3), (9, 2, -3), (9, 4, -3), (3, 9, 3), (0, 10, 3), (1.5, 5, 0.5), (5, 1.5, -0.5), (2, 2, 1)):
        case("aten.arange.start_step", *span)
    case("aten.arange.start", 1.5, 4)
    for span in ((0, 8, 1), (0.0, 4.0, 0.5)):  # the elements fill the blocks that memory is given in: one more is beyond
        case("aten.arange.start_step", *span)
    for ends in ((2.0, 5.0, 7), (-3, 4, 2), (0.1, 0.7, 1), (1, 9, 9)):
        case("aten.linspace.default", *ends, ulps=1)
    for start, end, steps in exact_spaces():
        case("aten.linspace.default", start, end, steps)


def exact_spaces():
    """Of which torch's numbers are ours, and counting from one end only gives others, as does another middle."""
    def fma(a, b, c):
        return numpy.float32(float(a) * float(b) + float(c))  # exact in float64 for few bits
    random = numpy.random.Generator(numpy.random.PCG64(4))
    found = []
    while len(found) < 3:
        start, end = (float(numpy.float32(v)) for v in random.integers(-300, 300, 2) / 64)
        steps = int(random.integers(7, 12))
        step = numpy.float32(numpy.float32(end - start) / numpy.float32(steps - 1))
        up = [fma(step, i, start) for i in range(steps)]
        down = [fma(-step, steps - 1 - i, end) for i in range(steps)]
        ours = [up[i] if i < steps // 2 else down[i] for i in range(steps)]
        middle, third = steps // 2, steps // 3
        if ours == torch.linspace(start, end, steps).numpy().tolist() and up[-1] != down[-1] and up[middle] != down[middle] \
                and up[third] != down[third]:
            found.append((start, end, steps))
    return found


def moved():  # kernels_copy.cc, kernels_slice.cc
    t = rand(4, 6)
    refuse("aten.cat.default", [rand(2, 3), rand(2, 1)], 0)
    case("aten._to_copy.default", rand(3, 4), dtype=torch.bfloat16)
    case("aten.stack.default", [rand(2, 3), rand(2, 3), rand(2, 3)], 1)
    case("aten.stack.default", [rand(2), rand(2), rand(2), rand(2)], -1)
    case("aten.slice_backward.default", rand(2, 6), [4, 6], 0, 1, 3, 1)
    case("aten.slice_backward.default", rand(3, 6), [4, 6], 0, -3, 9, 1)
    case("aten.slice_backward.default", rand(4, 2), [4, 6], 1, -4, -1, 2)
    case("aten.select_backward.default", rand(6), [4, 6], 0, 2)
    case("aten.repeat.default", rand(1), [1])
    case("aten.flip.default", torch.tensor(3.0), [0])
    case("aten.flip.default", t.t(), [1])
    one = [rand(4, 3), rand(1), rand(3, 2)]
    case("bucketing._pre_bucket_reduce_scatter.default", args_full=[one, 2, None], expect=torch._chunk_cat(one, 0, 2).flatten())
    ins = [rand(3, 2), rand(4)]
    out = torch.zeros(30, dtype=torch.bfloat16)
    out[20:30] = torch.cat([x.flatten() for x in ins]).bfloat16()
    CASES.append({"op": "bucketing._pre_bucket_all_gather.default", "only": [20, 30],
                  "args": [encode(a) for a in (ins, 3, torch.bfloat16, [1, 1], 2, None)],
                  "results": [encode(out)]})
    case("aten.slice_copy.Tensor", t, 0, 2, 3, 1)
    case("aten.slice_copy.Tensor", t, 1, 5, 6, 2)
    case("aten.slice_copy.Tensor", t, 0, 4, 9, 1)
    for shift in (1, -1, 0, 4, 7):
        case("aten.roll.default", t, [shift], [0])
    case("aten.roll.default", t, [1])
    case("aten.roll.default", t.t(), [1, 1], [0, -1])
    case("aten.tril.default", rand(4, 1), -1)
    case("aten.triu.default", rand(4, 1), 0)
    for op in ("tril", "triu"):
        case(f"aten.{op}.default", rand(0, 0))
        case(f"aten.{op}.default", rand(3, 0))
        case(f"aten.{op}.default", rand(2, 4, 3), -1)


def indexed():  # shared/kernels_index.cc, shared/kernels_scatter.cc, ops/index_call.cc
    refuse("aten.gather.default", rand(4, 3), 1, torch.zeros(6, 3, dtype=torch.int64))
    refuse("aten.gather.default", rand(4, 3), 1, torch.tensor([0]))
    case("aten.index_put.default", torch.zeros(3, 16), [torch.tensor([2, 0, 2])], ints(-4, 5, 3, 16).float(), True)
    case("aten.index_select.default", torch.tensor(3.5), 0, torch.tensor([0]))
    refuse("aten.index_select.default", torch.tensor(3.5), 0, torch.tensor([1]))
    row, places = rand(5), torch.tensor([4, 0, 2, 4])
    case("aten.gather.default", row, 0, places)
    case("aten.gather.default", torch.tensor(2.5), 0, torch.tensor(0))
    case("aten.scatter_add.default", torch.tensor(2.5), 0, torch.tensor(0), torch.tensor(1.5))
    for op in ("scatter.src", "scatter_.src", "scatter_add.default", "scatter_add_.default"):
        case(f"aten.{op}", rand(5), 0, torch.tensor([4, 0, 2]), ints(-4, 5, 3).float(), atol=1e-6)
    case("aten.scatter.value", rand(5), 0, places, 7)
    case("aten.scatter_.value", rand(5), 0, places, 7)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            case("aten.scatter_reduce.two", ints(-4, 5, 5), 0, torch.tensor([4, 0, 2, 4]), ints(-4, 5, 4), reduce, include_self=include)
    case("aten.scatter_reduce.two", rand(8), 0, ints(0, 8, 6), rand(6), "mean", ulps=2, atol=1e-6)
    both = torch.tensor([-0.0, 0.0]), 0, torch.tensor([0, 1]), torch.tensor([0.0, -0.0])
    for reduce in ("amax", "amin"):
        case("aten.scatter_reduce.two", *both, reduce)
        case("aten.scatter_reduce.two", torch.tensor([1.0, NAN, 2.0]), 0, torch.tensor([0, 1, 2]), torch.tensor([NAN, 1.0, 3.0]), reduce)


def found():  # shared/kernels_rearrange.cc, shared/kernels_sort.cc
    classes = torch.tensor([[2, 0, 1], [3, 3, 0]])
    case("aten.one_hot.default", args_full=[classes, -1], expect=F.one_hot(classes, -1))
    none = torch.empty(0, dtype=torch.int64)
    case("aten.one_hot.default", args_full=[none, 3], expect=F.one_hot(none, 3))
    for classes, count in ((none, -1), (none, 0), (torch.tensor([0, 1]), 0), (torch.tensor([0, 2]), 2), (torch.tensor([0, -1]), 2)):
        refuse_by("aten.one_hot.default", [classes, count], lambda: F.one_hot(classes, count))
    for values, bins, low, high in ((torch.full((3,), 2.0), 5, 0, 0), (torch.full((3,), 2.0), 4, 0, 0), (torch.empty(0), 4, 0, 0),
                                    (torch.tensor([1.0, 1.5, 2.0, 4.9, 5.0, 0.5, 5.5, 3.0]), 4, 1, 5), (rand(20, scale=3), 6, -2, 3)):
        case("aten.histc.default", values, bins, low, high)
    values = torch.tensor([NAN, 0.5, 2.0, -1.0, 1.0])
    for right in (False, True):
        for bounds in (torch.tensor([0.0, 1.0, NAN]), torch.tensor([0.0, NAN, NAN]), torch.tensor([-INF, 0.0, 1.0, INF, NAN, NAN])):
            case("aten.bucketize.Tensor", values, bounds, right=right)
            case("aten.searchsorted.Tensor", bounds, values, right=right)
        case("aten.searchsorted.Tensor", torch.tensor([[1.0], [2.0]]), torch.tensor([[0.5, 1.0, 1.5], [2.0, 1.0, 3.0]]), right=right)
        case("aten.searchsorted.Tensor", torch.arange(0, 40, 2), torch.arange(-1, 42), right=right)
    case("aten.sort.default", torch.tensor(3.5))
    case("aten.sort.default", rand(3, 4, 5), 1)
    case("aten.sort.stable", rand(3, 4, 5), stable=True, dim=1, descending=True)
    case("aten.topk.default", rand(7), 3, 0)
    case("aten.topk.default", rand(2, 5, 3), 2, 1)
    case("aten.topk.default", rand(2, 3, 5), 2, 2, False)
    case("aten.topk.default", torch.tensor(1.5), 1, 0)


def statistics():  # shared/kernels_statistics.cc
    level = rand(4, 9) + 1000  # a wrong sum of squares loses all digits
    for op in ("var", "std"):
        case(f"aten.{op}.correction", level, [1], correction=1, ulps=16, atol=1e-4)
        case(f"aten.{op}.correction", rand(3, 7), [1], correction=None, ulps=8, atol=1e-6)
        case(f"aten.{op}.correction", rand(3, 4, 7), [2], ulps=8, atol=1e-6)
    case("aten.var_mean.correction", rand(3, 4, 7), [2], ulps=8, atol=1e-6)
    case("aten.var_mean.correction", rand(3, 4, 7), [0], correction=0, keepdim=True, ulps=8, atol=1e-6)
    several = torch.tensor([[0.0, 1.0, 0.0, -2.0, 1.0], [-0.0, NAN, INF, 0.0, 1.0]])
    for order in (0, 1, 2, INF, -INF):
        case("aten.linalg_vector_norm.default", several, order, [1], ulps=8)
    case("aten.logsumexp.default", torch.tensor([[200.0, 190.0, -500.0], [-200.0, -300.0, -210.0], [100.0, 100.0, 100.0]]), [1], ulps=4)
    case("aten.prod.default", rand(3, 4), dtype=torch.float64, ulps=16)
    case("aten.cumprod.default", rand(3, 4), 1, dtype=torch.float64, ulps=16)
    case("aten.prod.dim_int", rand(3, 4), 1, dtype=torch.float64, ulps=16)
    case("aten.cummax.default", torch.tensor([1.0, NAN, 2.0, NAN, 3.0]), 0)


def reduced():
    case("aten.cumsum.default", torch.tensor(2.5), 0)
    case("aten.cumsum_.default", torch.tensor(2.5), -1)
    case("aten.cumsum.default", torch.tensor(2.5), 0, dtype=torch.float64)


def viewed():  # kernels_view.cc
    v = lambda op, *a, **k: case(op, *a, is_view=True, **k)
    t = rand(4, 6)
    v("aten.view.default", t[:, ::2], [2, 2, 3])
    v("aten.view.default", t[:, ::2], [12])
    v("aten.view.default", torch.as_strided(rand(9), [2, 1, 3], [3, 7, 1]), [6])
    v("aten.view.default", rand(3, 1, 4)[:, :, 1:3], [3, 2])
    refuse("aten.view.default", t[:, 1:4], [12])
    v("aten.as_strided.default", t[1:], [2, 2], [3, 2])
    for x, sizes in ((torch.tensor(5.0), [1]), (torch.tensor(5.0), [1, 1]), (torch.tensor(5.0), [3, 1]), (rand(3), [1, 1, 3]),
                     (rand(3), [1, 2, 3]), (rand(3, 4), [1, 3, 4]), (rand(3, 4), [1, 1, 3, 4]), (rand(3, 4), [2, 1, 3, 4]),
                     (rand(3, 4).t(), [1, 4, 3])):
        v("aten.expand.default", x, sizes)
    v("aten.transpose.int", rand(3), 0, 0)
    v("aten.transpose.int", torch.tensor(3.0), 0, -1)
    v("aten.t.default", rand(3))
    v("aten.t.default", torch.tensor(3.0))
    refuse("aten.t.default", rand(2, 3, 4))
    for x in (rand(2, 3, 5), rand(3), rand(2, 7).t()):
        for dim in range(-x.dim() - 1, x.dim() + 1):
            v("aten.unsqueeze.default", x, dim)
    v("aten.slice.Tensor", t, 0, 0, 3)
    v("aten.slice.Tensor", t, 1, None, 4)
    v("aten.slice.Tensor", t, 1, 2, None)
    v("aten.slice.Tensor", t, 0, -9, -1)
    v("aten.select.int", rand(2, 3, 4), 0, 1)
    v("aten.select.int", rand(2, 3, 4), 2, 0)
    for size, dim in ((2, 0), (3, 1), (6, 1), (1, 0)):
        v("aten.split.Tensor", t, size, dim)
        case("aten.unsafe_split.Tensor", t, size, dim)
    v("aten.split.Tensor", rand(0, 3), 2)
    pairs = rand(12)
    v("aten.view_as_complex.default", torch.as_strided(pairs, [2, 2], [4, 1], 2))
    v("aten.view_as_complex.default", torch.as_strided(pairs, [2, 2], [2, 1], 6))
    refuse("aten.view_as_complex.default", torch.as_strided(pairs, [2, 2], [4, 1], 3))
    refuse("aten.view_as_complex.default", torch.as_strided(pairs, [2, 2], [3, 1], 0))
    refuse("aten.view_as_complex.default", torch.as_strided(pairs, [2, 2, 2], [4, 3, 1], 0))
    for shift in (0, 1, -1, 2, -2, 5, -3, 4, -4, 9, -9):
        v("aten.diagonal.default", t, shift)
        v("aten.diagonal.default", t.t(), shift)
    v("aten.diagonal.default", rand(2, 3, 5), -1, 2, 0)
    v("aten.diagonal.default", rand(2, 3, 5), 1, -2, -1)
    refuse("aten.diagonal.default", t, 0, 1, -1)
    # As a copy, where an extent of 1 allows a view that the sizes do not.
    for self, sizes in ((torch.as_strided(rand(8), [1, 8], [1, 1]), [2, 4]), (torch.as_strided(rand(16), [1, 8], [1, 2]), [2, 4]),
                        (torch.as_strided(rand(16), [8, 1], [2, 1]), [2, 4]), (torch.as_strided(rand(1), [1, 8], [1, 0]), [2, 4]),
                        (torch.as_strided(rand(8), [2, 4], [1, 2]), [8])):
        case("aten.reshape.default", args_full=[self, sizes], expect=self.clone().reshape(sizes).contiguous(), is_recorded=True)


def multiplied():  # kernels_matmul.cc, ops/matrix_calls.h
    refuse("aten.dot.default", rand(3), rand(4))
    case("aten.mv.default", rand(16, 16), rand(16), ulps=4, atol=1e-5)
    close = {"ulps": 4, "atol": 1e-5}
    case("aten.mm.default", rand(3, 4), rand(4, 2), **close)
    case("aten.mm.default", rand(2, 4), rand(4, 3), **close)
    case("aten.mm.default", rand(2, 4, dtype=torch.bfloat16), rand(4, 3, dtype=torch.bfloat16), ulps=1, atol=1e-5)
    half = torch.float16
    case("aten.addmm.default", rand(4, dtype=half), rand(3, 5, dtype=half), rand(5, 4, dtype=half), ulps=2, atol=1e-2)
    for beta, alpha in ((0, 1), (0, 0.5), (0, -2.0), (2.0, 0.25)):
        nothing = torch.full((4,), NAN) if beta == 0 else rand(4)
        case("aten.addmm.default", nothing, rand(3, 5), rand(5, 4), beta=beta, alpha=alpha, **close)
    case("aten.baddbmm.default", torch.full((2, 3, 4), NAN), rand(2, 3, 5), rand(2, 5, 4), beta=0, alpha=0.5, **close)
    bf, i32 = torch.bfloat16, torch.int32
    close = {"ulps": 1, "atol": 1e-4}
    ends = torch.tensor([0, 1, 4, 5, 8], dtype=i32)  # groups of no row and of one
    a, b = rand(8, 16, dtype=bf), rand(5, 16, 8, dtype=bf)
    starts = [0, 0, 1, 4, 5]
    out = torch.zeros(8, 8, dtype=torch.float64)
    for g, (s, e) in enumerate(zip(starts, ends.tolist())):
        out[s:e] = a[s:e].double() @ b[g].double()
    for dtype in (None, bf):
        case("aten._grouped_mm.default", args_full=[a, b, ends, None, dtype], expect=out.to(bf), **close)
    a, b = rand(5, 16, 8, dtype=bf), rand(8, 8, dtype=bf)
    out = torch.zeros(16, 8, dtype=torch.float64)
    for g, (s, e) in enumerate(zip(starts, ends.tolist())):
        out[:, s:e] = a[g].double() @ b[:, s:e].double()
    case("aten._grouped_mm.default", args_full=[a, b, ends, None, None], expect=out.to(bf), **close)
    a, b = rand(16, 8, dtype=bf), rand(8, 8, dtype=bf)
    out = torch.stack([a[:, s:e].double() @ b[s:e].double() for s, e in zip(starts, ends.tolist())])
    case("aten._grouped_mm.default", args_full=[a, b, ends, None, None], expect=out.to(bf), **close)


def attended():  # kernels_attention.cc
    close = {"ulps": 2, "atol": 1e-3}
    half = torch.float16
    q, k, v = rand(1, 2, 3, 4, dtype=half), rand(1, 2, 5, 4, dtype=half), rand(1, 2, 5, 4, dtype=half)
    s = q.double() @ k.double().transpose(-2, -1) * 0.5
    out = (s.softmax(-1) @ v.double()).to(half)
    case("aten._scaled_dot_product_flash_attention.default", args_full=[q, k, v, 0.0, False, False, 0.5],
         expect=(out, s.logsumexp(-1).float()), **close)
    # The memory-efficient kernel pads its sums to 32 queries; nobody reads the padding, which is 0.
    padded = torch.zeros(1, 2, 32)
    padded[..., :3] = s.logsumexp(-1).float()
    for sums in (padded, torch.zeros(1, 2, 0)):
        zero = torch.zeros((), dtype=torch.int64)
        case("aten._scaled_dot_product_efficient_attention.default", args_full=[q, k, v, None, sums.numel() > 0, 0.0, False, 0.5],
             expect=(out, sums, zero, zero), is_recorded=True, **close)
    q, k, v, g = rand(2, 2, 130, 2), rand(2, 1, 131, 2), rand(2, 1, 131, 2), rand(2, 2, 130, 2)
    qd, kd, vd = (x.double().requires_grad_() for x in (q, k, v))
    s = (qd @ kd.transpose(-2, -1) * 0.7).masked_fill(~torch.ones(130, 131).tril().bool(), -INF)
    lse = s.logsumexp(-1)
    y = s.softmax(-1) @ vd
    y.backward(g.double())
    out = y.detach().float()
    case("aten._scaled_dot_product_flash_attention.default", args_full=[q, k, v, 0.0, True, False, 0.7],
         expect=(out, lse.detach().float()), ulps=8, atol=4e-6)
    case("aten._scaled_dot_product_flash_attention_backward.default",
         args_full=[g, q, k, v, out, lse.detach().float(), None, None, 130, 131, 0.0, True, None, None, 0.7],
         expect=tuple(x.grad.float() for x in (qd, kd, vd)), ulps=8, atol=1e-4)
    q, k, v = rand(2, 2, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4)
    bias = rand(2, 2, 3, 5)
    s = q.double() @ k.double().transpose(-2, -1) * 0.5 + bias.double()
    case("aten._scaled_dot_product_flash_attention_for_cpu.default", args_full=[q, k, v, 0.0, False, bias, 0.5],
         expect=((s.softmax(-1) @ v.double()).float(), s.logsumexp(-1).float()), ulps=8, atol=4e-6)
    # More queries and keys than a block has, with a bias by query and one by key.
    q, k, v = rand(1, 1, 130, 1), rand(1, 1, 131, 1), rand(1, 1, 131, 1)
    for bias in (rand(1, 1, 130, 1), rand(1, 1, 1, 131)):
        # Both change the sum; the one by query leaves the output.
        s = q.double() @ k.double().transpose(-2, -1) * 0.5 + bias.double()
        case("aten._scaled_dot_product_flash_attention_for_cpu.default", args_full=[q, k, v, 0.0, False, bias, 0.5],
             expect=((s.softmax(-1) @ v.double()).float(), s.logsumexp(-1).float()), ulps=8, atol=4e-6)
    # A score that overflows.
    q, k, v = rand(1, 1, 2, 4), rand(1, 1, 2, 4), rand(1, 1, 2, 4)
    q[0, 0, 0, 0] = k[0, 0, :, 0] = 3e38
    q[0, 0, 1, 0] = 0.0
    case("aten._scaled_dot_product_flash_attention_for_cpu.default", q, k, v, 0.0, False, ulps=8, atol=4e-6)


# ---- FlexAttention ------------------------------------------------------------------------------


class At:
    """A value of a nested graph: its parameters first, then what its steps give."""

    def __init__(self, place):
        self.place = place

    def encoded(self, _):
        return {"at": self.place}


class Nested:
    """A nested graph: steps (op, arguments), and what it returns, a value or a list of values and None."""

    def __init__(self, params, steps, returns):
        self.params, self.steps, self.returns = params, steps, returns

    def encoded(self, each):
        steps = [{"op": op, "args": [each(a) for a in args]} for op, args in self.steps]
        return {"function": {"params": self.params, "steps": steps, "returns": each(self.returns)}}

    def __call__(self, *values):
        values = list(values)

        def found(v):
            return values[v.place] if isinstance(v, At) else [found(x) for x in v] if isinstance(v, list) else v
        for op, args in self.steps:
            called = find(op)
            given = list(zip(called._schema.arguments, map(found, args)))
            values.append(called(*[a for p, a in given if not p.kwarg_only], **{p.name: a for p, a in given if p.kwarg_only}))
        return found(self.returns)


def first_of(v):
    return v[0] if isinstance(v, list) else v


SCORE, BATCH, HEAD, QUERY, KEY, GRAD = map(At, range(6))  # of a score function; a mask has the middle four from 0 on
SAME = Nested(5, [], SCORE)
SAME_BACK = Nested(6, [], [GRAD, None, None, None, None])
# score * (head + 1) + (query - key) * 0.25 + table[head, query], in a list as graphs return it
BIASED = Nested(6, [("aten.add.Tensor", [HEAD, 1, 1]), ("aten.mul.Tensor", [SCORE, At(6)]), ("aten.sub.Tensor", [QUERY, KEY, 1]),
                    ("aten.mul.Tensor", [At(8), 0.25]), ("aten.add.Tensor", [At(7), At(9), 1]),
                    ("aten.index.Tensor", [At(5), [HEAD, QUERY]]), ("aten.add.Tensor", [At(10), At(11), 1])], [At(12), At(6)])
BIASED_BACK = Nested(7, [("aten.add.Tensor", [HEAD, 1, 1]), ("aten.mul.Tensor", [GRAD, At(7)])], [At(8), None, None, None, None, None])
# score^2 / 2
SQUARED = Nested(5, [("aten.mul.Tensor", [SCORE, SCORE]), ("aten.mul.Tensor", [At(5), 0.5])], At(6))
SQUARED_BACK = Nested(6, [("aten.mul.Tensor", [GRAD, SCORE])], [At(6), None, None, None, None])
M_BATCH, M_HEAD, M_QUERY, M_KEY = map(At, range(4))
CAUSAL = Nested(4, [("aten.ge.Tensor", [M_QUERY, M_KEY])], At(4))
# Of each head but the first every other key: (head * key) & 1 == 0, in a list.
STRIPED = Nested(4, [("aten.mul.Tensor", [M_HEAD, M_KEY]), ("aten.bitwise_and.Scalar", [At(4), 1]), ("aten.eq.Scalar", [At(5), 0])],
                 [At(6), At(4)])
# Queries and keys of the same document, captured.
DOCUMENTS = Nested(5, [("aten.index.Tensor", [At(4), [M_QUERY]]), ("aten.index.Tensor", [At(4), [M_KEY]]),
                       ("aten.eq.Tensor", [At(5), At(6)])], At(7))
# A captured flag for all pairs.
ALL_OR_NONE = Nested(5, [], At(4))


class Tables:
    """Which blocks of keys each block of queries looks at, masked or full, [batch or 1][head or 1][block]: {block: is full}."""

    def __init__(self, looks, q_block, k_block, blocks):
        self.looks, self.q_block, self.k_block, self.blocks = looks, q_block, k_block, blocks

    def table(self, is_full, by_key):
        """(counts, lists); beyond its count a list has what is never read."""
        rows, width = self.blocks[::-1] if by_key else self.blocks
        counts, lists = [], []
        for batch in self.looks:
            for head in batch:
                for row in range(rows):
                    pairs = [(q, k) for q, looks in enumerate(head) for k, full in looks.items() if full == is_full]
                    found = [q for q, k in pairs if k == row] if by_key else [k for q, k in pairs if q == row]
                    counts.append(len(found))
                    lists.append(found + [77] * (width - len(found)))
        shape = (len(self.looks), len(self.looks[0]), rows)
        return [torch.tensor(counts, dtype=torch.int32).reshape(shape), torch.tensor(lists, dtype=torch.int32).reshape(*shape, width)]

    def mask(self, sizes, mask):
        has_full = any(full for batch in self.looks for head in batch for looks in head for full in looks.values())
        full = [self.table(True, by_key) if has_full else [None, None] for by_key in (False, True)]
        return [*sizes, *self.table(False, False), *full[0], *self.table(False, True), *full[1], None, None, None, None,
                self.q_block, self.k_block, mask]

    def kept(self, mask):
        """The pairs that count, [batch, head, query, key], of a mask [batch, head, query, key]."""
        result = torch.zeros_like(mask)
        for b in range(mask.shape[0]):
            for h in range(mask.shape[1]):
                of_batch = self.looks[b if len(self.looks) > 1 else 0]
                for q, looks in enumerate(of_batch[h if len(of_batch) > 1 else 0]):
                    for k, full in looks.items():
                        block = (b, h, slice(q * self.q_block, (q + 1) * self.q_block), slice(k * self.k_block, (k + 1) * self.k_block))
                        result[block] = True if full else mask[block]
        return result


def places(sizes):
    """Batch, head, query and key as the functions get them."""
    return [torch.arange(n, dtype=torch.int32).reshape([-1 if d == at else 1 for d in range(4)]) for at, n in enumerate(sizes)]


def attend(operands, scale, functions, tables, captured):
    """Attention written out: (output, logsumexp, largest score), the last two in units of log 2."""
    q, k, v = operands
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(-2, -1) * scale
    at = places(scores.shape)
    scores = first_of(functions[0](scores, *at, *captured[0]))
    keep = tables.kept(torch.broadcast_to(first_of(functions[1](*at, *captured[1])), scores.shape).clone())
    scores = torch.where(keep, scores, -INF)
    some = keep.any(-1, keepdim=True)
    finite = torch.where(some, scores, 0.0)
    weights = torch.where(keep & some, finite.softmax(-1), 0.0)
    used = torch.where(v.isfinite(), v, 0.0).repeat_interleave(group, 1)  # an infinite one is a masked key's
    lse = torch.where(some[..., 0], finite.logsumexp(-1), -INF)
    return weights @ used, lse / math.log(2), torch.where(some[..., 0], scores.amax(-1), -INF) / math.log(2)


def flex_case(operands, tables, functions, captured=((), ()), grads=(True, True), scale=0.6, bounds=None, is_backward_only=False):
    """Forward and backward; `grads`: whether there are gradients of the output and of the logsumexp."""
    score, back, mask = functions
    q, k, v = operands
    bounds = bounds or {"ulps": 4, "atol": 4e-6}
    wide = [x.double().requires_grad_() for x in operands]
    out, lse, largest = attend(wide, scale, (score, mask), tables, captured)
    masks = tables.mask([q.shape[2], k.shape[2]], mask)
    if not is_backward_only:
        case("higher_order.flex_attention", args_full=[q, k, v, score, masks, scale, {}, list(captured[0]), list(captured[1])],
             expect=(out.detach().to(q.dtype), lse.detach().float(), largest.detach().float()), **bounds)
    g, g_lse = rand(*out.shape, dtype=q.dtype), rand(*lse.shape)
    loss = 0.0
    if grads[0]:
        loss = loss + (out * g.double()).sum()
    if grads[1]:
        loss = loss + torch.where(lse.isfinite(), lse * g_lse.double(), 0.0).sum()
    loss.backward()
    results = tuple((torch.zeros_like(x) if x.grad is None else x.grad).to(q.dtype) for x in wide)
    args = [q, k, v, out.detach().to(q.dtype), lse.detach().float(), g if grads[0] else None, g_lse if grads[1] else None,
            score, back, masks, scale, {}, list(captured[0]), list(captured[1])]
    case("higher_order.flex_attention_backward", args_full=args, expect=(*results, [None] * len(captured[0])),
         ulps=4 * bounds["ulps"], atol=8 * bounds["atol"])


def causal_looks(blocks, q_block, k_block, full):
    """Blocks of keys up to the last query; those up to the first query are full if asked."""
    return [{k: full and (k + 1) * k_block <= q * q_block + 1 for k in range(blocks[1]) if k * k_block < (q + 1) * q_block}
            for q in range(blocks[0])]


def flex():  # flex_attention.cc, attention_tiles.cc
    def operands(q, kv, depths, dtype=torch.float32):
        return rand(*q, depths[0], dtype=dtype), rand(*kv, depths[0], dtype=dtype), rand(*kv, depths[1], dtype=dtype)
    # Tables for all batches and heads, with full blocks and without.
    for full in (False, True):
        tables = Tables([[causal_looks((3, 3), 4, 4, full)]], 4, 4, (3, 3))
        flex_case(operands((2, 4, 10), (2, 2, 10), (4, 3)), tables, (SAME, SAME_BACK, CAUSAL), grads=(True, not full))
    # Tables of each batch and head, each different; other sizes of blocks; a mask that depends on
    # the head.
    random = numpy.random.Generator(numpy.random.PCG64(5))

    def any_looks(batches, heads, blocks):
        return [[[{int(k): bool(random.integers(0, 2)) for k in sorted(random.permutation(blocks[1])[:random.integers(1, blocks[1] + 1)])}
                  for _ in range(blocks[0])] for _ in range(heads)] for _ in range(batches)]
    heads = rand(4, 7)
    tables = Tables(any_looks(2, 4, (3, 2)), 3, 5, (3, 2))
    flex_case(operands((2, 4, 7), (2, 2, 9), (3, 4)), tables, (BIASED, BIASED_BACK, STRIPED), ((heads,), ()))
    flex_case(operands((2, 4, 7), (2, 2, 9), (3, 4)), Tables(any_looks(2, 1, (3, 2)), 3, 5, (3, 2)), (SQUARED, SQUARED_BACK, STRIPED))
    flex_case(operands((2, 2, 7), (2, 1, 9), (3, 4)), Tables(any_looks(1, 2, (3, 2)), 3, 5, (3, 2)), (SQUARED, SQUARED_BACK, STRIPED),
              grads=(True, False))
    # One batch of keys for all; a gradient of the logsumexp alone; captured documents.
    documents = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    tables = Tables([[[{0: False, 1: False}, {0: False, 1: False}]]], 4, 4, (2, 2))
    flex_case(operands((2, 3, 7), (1, 3, 7), (3, 2)), tables, (SQUARED, SQUARED_BACK, DOCUMENTS), ((), (documents,)), grads=(False, True))
    flex_case(operands((1, 2, 7), (1, 1, 7), (3, 2)), tables, (SAME, SAME_BACK, ALL_OR_NONE), ((), (torch.tensor(True),)))
    # A mask of heads and queries; positions that fill a block of memory.
    by_head = Nested(4, [("aten.add.Tensor", [M_HEAD, M_KEY, 1]), ("aten.ge.Tensor", [M_QUERY, At(4)])], At(5))
    flex_case(operands((1, 2, 16), (1, 1, 16), (1, 1)), Tables([[[{0: False}]]], 128, 128, (1, 1)), (SQUARED, SQUARED_BACK, by_head))
    # Rows that see no key: masked, and not listed. More keys than lanes of a sum.
    none = Nested(4, [("aten.gt.Tensor", [M_QUERY, M_KEY])], At(4))
    flex_case(operands((1, 2, 6), (1, 1, 6), (3, 2)), Tables([[[{0: False}, {0: False, 1: False}]]], 3, 3, (2, 2)),
              (SAME, SAME_BACK, none))
    flex_case(operands((1, 1, 6), (1, 1, 6), (3, 2)), Tables([[[{}, {0: True}]]], 3, 3, (2, 2)), (SQUARED, SQUARED_BACK, CAUSAL))
    wide = Tables([[[{0: True, 1: False}]]], 128, 24, (1, 2))
    flex_case(operands((1, 1, 3), (1, 1, 41), (2, 2)), wide, (SAME, SAME_BACK, CAUSAL))
    flex_case(operands((1, 1, 3), (1, 1, 41), (2, 2), torch.bfloat16), wide, (SAME, SAME_BACK, CAUSAL), bounds={"ulps": 2, "atol": 1e-2})
    # Gradients through a masked key whose value is infinite are 0.
    q, k, v = operands((1, 1, 3), (1, 1, 4), (2, 2))
    v[0, 0, 3] = INF
    flex_case((q, k, v), Tables([[[{0: False}]]], 128, 128, (1, 1)), (SQUARED, SQUARED_BACK, CAUSAL), is_backward_only=True)
    # Sizes that do not fit.
    tables = Tables([[[{0: False}]]], 128, 128, (1, 1))
    for q, k, v in (((2, 4, 3, 4), (2, 2, 5, 3), (2, 2, 5, 4)), ((2, 4, 3, 4), (2, 2, 5, 4), (3, 2, 5, 4)),
                    ((2, 4, 3, 4), (2, 2, 5, 4), (2, 1, 5, 4)), ((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 6, 4)),
                    ((2, 4, 3, 4), (3, 2, 5, 4), (3, 2, 5, 4)), ((2, 4, 3, 4), (2, 3, 5, 4), (2, 3, 5, 4)),
                    ((2, 4, 3, 4), (2, 0, 5, 4), (2, 0, 5, 4))):
        args = [rand(*q), rand(*k), rand(*v), SAME, tables.mask([3, 5], CAUSAL), 0.5, {}, [], []]
        refuse_by("higher_order.flex_attention", args, lambda: attend(args[:3], 0.5, (SAME, CAUSAL), tables, ((), ())))


def tiled():  # shared/scratch.cc, tasks/row_tasks.h: rows as long as a device's tile of 1,024, or by one longer or shorter
    for length in (1023, 1024, 1025, 2049):
        rows = torch.zeros(2, length, dtype=torch.int8)
        rows[0, -1], rows[1, 0] = 3, 5
        for op in ("max.dim", "min.dim"):
            case(f"aten.{op}", rows if op == "max.dim" else -rows, 1)
        flags = rows != 0
        case("aten.any.dim", flags, 1)
        case("aten.all.dim", ~flags, 1)
        case("aten.any.dim", torch.zeros_like(flags), 1)
        case("aten.all.dim", torch.ones_like(flags), 1)
    order = torch.arange(600, dtype=torch.int16)[torch.randperm(600, generator=torch.Generator().manual_seed(3))]
    case("aten.cumsum.default", torch.ones(2, 513, dtype=torch.int8), 1, dtype=torch.int16)
    case("aten.cumsum.default", torch.ones(1, 256, dtype=torch.int8), 1, dtype=torch.int16)
    case("aten.cumsum.default", torch.ones(1, 257, dtype=torch.int8), 1, dtype=torch.int16)
    case("aten.sort.stable", order.reshape(2, 300) // 3, stable=True, dim=1, descending=True)
    for count in (255, 256, 257, 513):
        flags = torch.zeros(count, dtype=torch.bool)
        flags[::100], flags[-1] = True, True
        case("aten.nonzero.default", flags)


def placed():  # shared/blocks.cc, tasks/index_tasks.h
    first, last = torch.tensor([-5, 4, -1, 0]), torch.tensor([-3, 2, -1, 0])
    case("aten.index.Tensor", rand(5, 3), [first])
    case("aten.index.Tensor", rand(5, 3), [None, last])
    for beyond in (-6, 5):
        refuse("aten.index.Tensor", rand(5), [torch.tensor([beyond])])
    number, second = torch.tensor(2.5), torch.tensor(1)
    refuse("aten.gather.default", number, 0, second)
    refuse("aten.scatter.src", number, 0, second, torch.tensor(1.5))
    refuse("aten.scatter.value", number, 0, second, 7)
    refuse("aten.scatter_add.default", number, 0, second, torch.tensor(1.5))
    refuse("aten.scatter_reduce.two", number, 0, second, torch.tensor(1.5), "sum")
    refuse("aten.scatter.src", rand(4, 3), 0, ints(0, 4, 3, 2), rand(2, 2))
    refuse("aten.scatter.src", rand(4, 3), 1, ints(0, 3, 3, 2), rand(3, 1))
    for adds in (False, True):
        refuse("aten.index_put.default", rand(0, 3), [torch.tensor([0])], rand(1, 3), adds)
    # One column of an index that covers less than the tensor, and columns of three dimensions.
    rows = torch.tensor([2, 0, 2])[:, None].expand(3, 2)
    case("aten.gather.default", rand(4, 5), 0, rows)
    case("aten.scatter.src", rand(4, 5), 0, torch.tensor([2, 0, 3])[:, None].expand(3, 2), rand(3, 2))
    case("aten.scatter_add.default", ints(-4, 5, 4, 5).float(), 0, rows, ints(-4, 5, 3, 4).float())
    index, whole = ints(0, 3, 2, 4, 3), ints(-4, 5, 3, 3, 4).float()
    source = ints(-4, 5, 3, 5, 3).float()
    case("aten.gather.default", whole, 1, index)
    case("aten.scatter.value", whole, 1, index, 7)
    case("aten.scatter_add.default", whole, 1, index, source)
    case("aten.scatter_reduce.two", whole, 1, index, source, "sum")
    case("aten.scatter_reduce.two", whole, 1, index, source, "amin", include_self=False)
    for padding in (2, 4):
        case("aten.embedding_dense_backward.default", ints(-4, 5, 6, 3).float(), torch.tensor([1, 1, 4, 2, 0, 2]), 7, padding, False)
    one = torch.tensor([2])
    for op in ("index_put.default", "index_put_.default"):
        for adds in (False, True):
            case(f"aten.{op}", rand(5), [one], rand(1), adds, atol=1e-6)
            case(f"aten.{op}", rand(1), [torch.tensor([0])], rand(1), adds, atol=1e-6)
            case(f"aten.{op}", rand(1, dtype=torch.bfloat16), [torch.tensor([0])], rand(1, dtype=torch.bfloat16), adds)
            # Blocks with gaps, of either side; several in one place.
            case(f"aten.{op}", ints(-4, 5, 3, 6).bfloat16().t(), [torch.tensor([5, 0, 3])], ints(-4, 5, 3, 3).bfloat16().t(), adds)
        case(f"aten.{op}", ints(-4, 5, 3, 6).bfloat16().t(), [torch.tensor([5, 0, 5])], ints(-4, 5, 3, 3).bfloat16().t(), True)
        # Rows of two columns that do not lie side by side.
        for adds in (False, True):
            case(f"aten.{op}", torch.arange(8.0).reshape(4, 2), [torch.tensor([3, 0, 2])], torch.arange(6.0).reshape(2, 3).t(), adds)
    # An index without elements may be larger than the tensor; one of one element may not.
    case("aten.gather.default", torch.arange(6.0).reshape(3, 2), 0, torch.zeros(0, 5, dtype=torch.int64))
    refuse("aten.gather.default", torch.zeros(3, 0), 0, torch.zeros(1, 1, dtype=torch.int64))


def quantified():  # shared/kernels_reduce.cc
    pairs = torch.tensor([[1 + 0j, 2j, 0j], [0j, 0j, 0j], [1j, 3 + 1j, 2 + 0j]], dtype=torch.complex64)
    bytes_ = torch.tensor([[0, 2, 0], [0, 0, 0], [3, 1, 255]], dtype=torch.uint8)
    for self in (pairs, bytes_):
        for op in ("all", "any"):
            case(f"aten.{op}.dim", self, 1)
            case(f"aten.{op}.dim", self, 0)
            case(f"aten.{op}.default", self)
            case(f"aten.{op}.default", self[2])
            case(f"aten.{op}.default", self[1])
    square = torch.arange(9, dtype=torch.float32).reshape(3, 3) - 4
    case("aten.argmax.default", square.t())
    case("aten.argmin.default", square.t())
    case("aten.sum.default", (2.0 ** torch.arange(9)).reshape(3, 3).t() * torch.tensor([1.0, 3.0, 5.0]))


def refined():  # shared/kernels_normalise.cc, shared/kernels_statistics.cc, shared/kernels_rearrange.cc, shared/kernels_sort.cc
    x, g, weight, bias = rand(2, 3, 4), rand(2, 3, 4), rand(4), rand(4)
    for affine in ((None, None), (None, bias), (weight, None)):
        case("aten.native_layer_norm.default", x, [4], *affine, 1e-5, ulps=8, atol=2e-6)
        _, mean, rstd = torch.ops.aten.native_layer_norm(x, [4], *affine, 1e-5)
        case("aten.native_layer_norm_backward.default", g, x, [4], mean, rstd, *affine,
             [True, *(t is not None for t in affine)], ulps=8, atol=4e-6)
    for wanted in ([True, False, False], [False, True, False], [False, False, True]):
        case("aten.native_layer_norm_backward.default", g, x, [4], mean, rstd, weight, bias, wanted, ulps=8, atol=4e-6)
    zeros = torch.tensor([[-0.0, 0.0, -1.3, -0.1], [-2.7, 5.3, 3.1, 0.0], [-1.1, -0.0, -3.3, -0.7]])  # the largest of a row
    case("aten._log_softmax.default", zeros, 1, False, ulps=2, atol=1e-6)
    case("aten._softmax.default", zeros, 1, False, ulps=2, atol=1e-6)
    half = [t.bfloat16() for t in (x, weight, bias)]
    case("aten.native_layer_norm.default", half[0], [4], half[1], half[2], 1e-5, ulps=2, atol=1e-2, is_recorded=True)
    for op in ("max.dim", "min.dim"):
        case(f"aten.{op}", rand(2, 3, 4), 1)
    case("aten.cummax.default", rand(0, 3), 1)
    for sizes in ((0, 4), (4, 0)):
        for dim in (0, 1):
            case("aten.cummax.default", torch.zeros(sizes), dim)
    for order in (3, 0.5, -1, -2):
        case("aten.linalg_vector_norm.default", x, order, [1], ulps=16, atol=1e-6)
    for order in (INF, -INF, -1):
        refuse("aten.linalg_vector_norm.default", rand(3, 0), order, [1])
        refuse("aten.linalg_vector_norm.default", rand(0), order)
        case("aten.linalg_vector_norm.default", rand(0, 3), order, [1])
    for order in (0, 1, 2, 3):
        case("aten.linalg_vector_norm.default", rand(3, 0), order, [1])
    for values, low, high in (([INF, -INF, 1.0], 0, 0), ([INF, INF], 0, 0), ([1.0, NAN], 0, 0), ([1.0, 2.0], 0, INF), ([1.0, 2.0], -INF, 0)):
        refuse("aten.histc.default", torch.tensor(values, dtype=torch.float64), 4, low, high)
    case("aten.histc.default", torch.tensor([1.0, INF, NAN, -INF, 2.0, 0.0]), 4, 0, 2)
    large = 2**53
    edges, values = torch.tensor([large, large + 1, large + 2]), torch.tensor([large - 1, large, large + 1, large + 2, large + 3])
    for right in (False, True):
        case("aten.bucketize.Tensor", values, edges, right=right)
        case("aten.searchsorted.Tensor", edges, values, right=right)
