#!/usr/bin/env python3
"""Rates of single ops on a device, one rank alone: TFLOP/s of products and attention, TB/s of what moves memory.

    scripts/dev/gpu_rates.py [--replay BIN] [--device cuda] [--runs 10] [--scale 1] [--with-torch] [--profile]
                             [--only TEXT]

Each op runs in a graph of its own, in portable math and, where the library has it, in native math; its time is the median of the
runs after three to warm up, by the device's clock (epweave-replay run --costs --measure-rank 0: kernels without the host's
time between them). Flops and bytes are those that the op needs:
each operand read once, each result written once. --with-torch: the same call of PyTorch on the same device, beside it.
--profile: below each op its kernels by Nsight Compute (ncu): time, and how much of the peak of multiprocessors and of memory the
longest launch of each took.
--scale N divides the large extents by N, to try the script without a GPU (--device emulated).
Exit codes: 0 measured, 1 an op failed, 2 usage.
"""
import argparse
import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BYTES = {"f64": 8, "f32": 4, "bf16": 2, "i64": 8, "i32": 4}


class Tensor:
    """An input of the graph: `[sizes]` of a dtype; integers count up and begin again at `below`."""

    def __init__(self, dtype, *sizes, below=0):
        self.dtype, self.sizes, self.below = dtype, sizes, below

    def bytes(self):
        return math.prod(self.sizes) * BYTES[self.dtype]

    def text(self):
        return f"{self.dtype}[{', '.join(map(str, self.sizes))}]"


class DType(str):
    """An argument that is a dtype."""


class Case:
    """`target` called with `args`; results are of types `results`."""

    def __init__(self, name, target, args, results, flops=0, native=False):
        self.name, self.target, self.args, self.results, self.flops, self.native = name, target, args, results, flops, native

    def tensors(self):
        for arg in self.args:
            yield from (item for item in (arg if isinstance(arg, list) else [arg]) if isinstance(item, Tensor))

    def bytes(self):
        return sum(tensor.bytes() for tensor in self.tensors()) + sum(result.bytes() for result in self.results)

    def write(self, path):
        lines, names = ["epweave text 1", "graph"], {}
        for tensor in self.tensors():
            names[id(tensor)] = name = f"x{len(names)}"
            if not tensor.below:
                lines.append(f"  %{name} = placeholder : {tensor.text()} role=user which={name}")
        for tensor in self.tensors():
            if tensor.below:
                name, count = names[id(tensor)], tensor.sizes[0]
                lines += [f"  %{name}_all = aten.arange.default({count}, dtype={tensor.dtype}, device=\"cuda\", pin_memory=False)"
                          f" : {tensor.text()}",
                          f"  %{name} = aten.remainder.Scalar(%{name}_all, {tensor.below}) : {tensor.text()}"]

        def show(arg):
            if isinstance(arg, Tensor):
                return f"%{names[id(arg)]}"
            if isinstance(arg, list):
                return f"[{', '.join(map(show, arg))}]"
            return str(arg)
        types = [result.text() for result in self.results]
        keywords = f", dtype={self.results[0].dtype}" if self.target == "aten._to_copy.default" else ""
        lines.append(f"  %y = {self.target}({', '.join(map(show, self.args))}{keywords}) : "
                     f"{types[0] if len(types) == 1 else '(' + ', '.join(types) + ')'}")
        lines.append("  %out = operator.getitem(%y, 0) : " + types[0] if len(types) > 1 else "  %out = aten.alias.default(%y) : "
                     + types[0])
        path.write_text("\n".join([*lines, "  output([%out])", ""]))

    def run_torch(self, torch, device, runs):
        dtypes = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32}

        def make(arg):
            if isinstance(arg, list):
                return [make(item) for item in arg]
            if isinstance(arg, DType):
                return dtypes[arg]
            if not isinstance(arg, Tensor):
                return arg
            if arg.below:
                return torch.arange(arg.sizes[0], device=device, dtype=dtypes[arg.dtype]).remainder(arg.below)
            return torch.randn(arg.sizes, device=device).to(dtypes[arg.dtype])
        args = [make(arg) for arg in self.args]
        keywords = {"dtype": dtypes[self.results[0].dtype]} if self.target == "aten._to_copy.default" else {}
        call = torch.ops
        for part in self.target.split("."):
            call = getattr(call, part)
        times = []
        for run in range(3 + runs):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call(*args, **keywords)
            end.record()
            torch.cuda.synchronize()
            if run >= 3:
                times.append(begin.elapsed_time(end) / 1e3)
        return statistics.median(times)


def product(name, dtype, m, k, n):
    return Case(name, "aten.mm.default", [Tensor(dtype, m, k), Tensor(dtype, k, n)], [Tensor(dtype, m, n)], 2 * m * k * n, True)


def cases(scale):
    n, rows, wide, vocabulary = 8192 // scale, 16384 // scale, 2048 // scale, 102400 // scale
    heads, tokens = 16, 4096 // scale

    def f32(*sizes):
        return Tensor("f32", *sizes)

    def bf16(*sizes):
        return Tensor("bf16", *sizes)
    yield product(f"mm bf16 {n} x {n} x {n}", "bf16", n, n, n)
    yield product(f"mm f32 {n // 2} x {n // 2} x {n // 2}", "f32", n // 2, n // 2, n // 2)
    yield product(f"mm f64 {n // 2} x {n // 2} x {n // 2}", "f64", n // 2, n // 2, n // 2)
    yield product(f"mm bf16 {rows} x {wide} x {11008 // scale}", "bf16", rows, wide, 11008 // scale)
    experts, width = 8, 1408 // scale
    yield Case(f"grouped mm bf16 {experts} x {rows // experts} x {wide} x {width}", "aten.bmm.default",
               [bf16(experts, rows // experts, wide), bf16(experts, wide, width)], [bf16(experts, rows // experts, width)],
               2 * rows * wide * width, True)
    yield Case(f"attention bf16, {heads} heads, {tokens} tokens, depth 128", "aten._scaled_dot_product_efficient_attention.default",
               [bf16(1, heads, tokens, 128), bf16(1, heads, tokens, 128), bf16(1, heads, tokens, 128), None, True, 0.0, True],
               [bf16(1, heads, tokens, 128), f32(1, heads, tokens), Tensor("i64"), Tensor("i64")], 2 * heads * tokens * tokens * 128, True)
    of_heads = [bf16(1, heads, tokens, 128) for _ in range(5)]  # gradient, query, key, value, result
    yield Case(f"attention backward bf16, {heads} heads, {tokens} tokens, depth 128",
               "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",  # no state of a generator among its arguments
               [*of_heads, f32(1, heads, tokens), 0.0, True], of_heads[1:4], 5 * heads * tokens * tokens * 128, True)
    experts_f64 = [Tensor("f64", experts, rows // experts, wide), Tensor("f64", experts, wide, width)]
    yield Case(f"grouped mm f64 {experts} x {rows // experts} x {wide} x {width}", "aten.bmm.default", experts_f64,
               [Tensor("f64", experts, rows // experts, width)], 2 * rows * wide * width, True)
    square = (n, n)
    yield Case("cast f32 to bf16", "aten._to_copy.default", [f32(*square)], [bf16(*square)])
    yield Case("cast bf16 to f32", "aten._to_copy.default", [bf16(*square)], [f32(*square)])
    yield Case("clone f32", "aten.clone.default", [f32(*square)], [f32(*square)])
    yield Case("add bf16", "aten.add.Tensor", [bf16(*square), bf16(*square)], [bf16(*square)])
    yield Case("mul f32", "aten.mul.Tensor", [f32(*square), f32(*square)], [f32(*square)])
    yield Case("silu bf16", "aten.silu.default", [bf16(*square)], [bf16(*square)])
    yield Case("cat bf16, last dimension", "aten.cat.default", [[bf16(rows, 1024), bf16(rows, 512)], -1], [bf16(rows, 1536)])
    yield Case("sum f32 of rows", "aten.sum.dim_IntList", [f32(*square), [1]], [f32(n)])
    yield Case("sum f32 of columns", "aten.sum.dim_IntList", [f32(*square), [0]], [f32(n)])
    yield Case("cumsum i64", "aten.cumsum.default", [Tensor("i64", rows * 8, below=7), 0], [Tensor("i64", rows * 8)])
    yield Case("softmax f32", "aten._softmax.default", [f32(*square), 1, False], [f32(*square)])
    yield Case(f"log softmax f32, {vocabulary} classes", "aten._log_softmax.default", [f32(wide, vocabulary), 1, False],
               [f32(wide, vocabulary)])
    yield Case("log softmax backward f32", "aten._log_softmax_backward_data.default",
               [f32(wide, vocabulary), f32(wide, vocabulary), 1, DType("f32")], [f32(wide, vocabulary)])
    yield Case("rms norm bf16", "aten._fused_rms_norm.default", [bf16(rows, wide), [wide], bf16(wide), 1e-5],
               [bf16(rows, wide), f32(rows, 1)])
    yield Case("embedding backward bf16", "aten.embedding_dense_backward.default",
               [bf16(rows, wide), Tensor("i64", rows, below=vocabulary // 16), vocabulary, -1, False], [bf16(vocabulary, wide)])
    yield Case("gather of rows bf16", "aten.index.Tensor", [bf16(rows, wide), [Tensor("i64", rows, below=rows // 2)]],
               [bf16(rows, wide)])
    yield Case("sort i64", "aten.sort.default", [Tensor("i64", rows * 8, below=61)],
               [Tensor("i64", rows * 8), Tensor("i64", rows * 8)])


def measure(args, folder, case, kind):
    graph, costs = folder / "case.txt", folder / "costs.json"
    case.write(graph)
    done = subprocess.run([args.replay, "run", graph, "-q", "--device", args.device, "--math", kind, "--warm-up", "3", "--repeat",
                           str(args.runs), "--costs", costs, "--measure-rank", "0"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{case.name}: exit {done.returncode}: {done.stderr.strip()}")
    found = [op for op in json.loads(costs.read_text())["ops"] if op["op"] == case.target]
    assert len(found) == 1, found
    return found[0]["p50"] / 1e6


TIME, COMPUTE, MEMORY = ("gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed",
                         "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")


def print_profile(args, graph):
    """A line for each kernel of the graph that was written last."""
    command = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base", "--metrics", ",".join((TIME, COMPUTE, MEMORY)),
               args.replay, "run", graph, "-q", "--device", args.device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if done.returncode != 0 or first is None:
        sys.exit(f"ncu: exit {done.returncode}: {done.stdout[-400:]}{done.stderr[-400:]}")
    launches = {}
    for row in csv.DictReader(lines[first:]):
        launch = launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
        launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    kernels = {}
    for launch in launches.values():
        kernels.setdefault(launch["kernel"], []).append(launch)
    for name, of_kernel in sorted(kernels.items(), key=lambda item: -sum(launch[TIME] for launch in item[1])):
        longest = max(of_kernel, key=lambda launch: launch[TIME])
        print(f"    {sum(launch[TIME] for launch in of_kernel) / 1e3:10.1f} us in {len(of_kernel):3} launches, the longest: "
              f"multiprocessors {longest[COMPUTE]:3.0f} %, memory {longest[MEMORY]:3.0f} %: {name[:90]}", flush=True)


def rate_of(case, seconds):
    if case.flops:
        return f"{case.flops / seconds / 1e12:8.2f} TFLOP/s"
    return f"{case.bytes() / seconds / 1e12:8.3f} TB/s   "


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--with-torch", action="store_true")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    torch = None
    if args.with_torch:
        import torch
        torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{'op':52} {'math':9} {'us':>10} {'rate':>16} {'PyTorch, us':>12} {'times':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(args.scale):
            if args.only not in case.name:
                continue
            theirs = None
            if torch is not None:
                try:
                    theirs = case.run_torch(torch, args.device, args.runs)
                except (RuntimeError, AttributeError, TypeError) as error:
                    print(f"{case.name}: PyTorch: {str(error).splitlines()[0]}", file=sys.stderr)
            for kind in ("portable", "native") if case.native and args.device != "emulated" else ("portable",):
                seconds = measure(args, pathlib.Path(folder), case, kind)
                beside = f"{theirs * 1e6:12.1f} {seconds / theirs:6.2f}" if theirs else ""
                print(f"{case.name:52} {kind:9} {seconds * 1e6:10.1f} {rate_of(case, seconds)} {beside}", flush=True)
            if args.profile:
                print_profile(args, pathlib.Path(folder) / "case.txt")


if __name__ == "__main__":
    main()
