#!/usr/bin/env python3
"""`epweave-replay --device`: what is not there is said, and the emulated device gives the CPU's bits.

EPWEAVE_REPLAY and EPWEAVE name the programs. With --step a whole training step is run too: half a minute.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from replay_tool import REPLAY, expect, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPH = ROOT / "testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz"

# Every kind of collective, with compute between launch and wait.
COLLECTIVES = """epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %mm = aten.mm.default(%x, %x) : f32[4, 4]
  %g = _c10d_functional.all_reduce.default(%mm, "sum", "7") : f32[4, 4]
  %s = _c10d_functional.reduce_scatter_tensor.default(%mm, "avg", 2, "7") : f32[2, 4]
  %a = _c10d_functional.all_to_all_single.default(%mm, [2, 2], [2, 2], "7") : f32[4, 4]
  %b = _c10d_functional.broadcast.default(%mm, 1, "7") : f32[4, 4]
  %ws = _c10d_functional.wait_tensor.default(%s) : f32[2, 4]
  %h = _c10d_functional.all_gather_into_tensor.default(%ws, 2, "7") : f32[4, 4]
  %l = _c10d_functional.reduce_scatter_tensor_coalesced.default([%mm, %x], "avg", 2, "7") : [f32[2, 4], f32[2, 4]]
  %l0 = operator.getitem(%l, 0) : f32[2, 4]
  %l1 = operator.getitem(%l, 1) : f32[2, 4]
  %y = aten.add.Tensor(%mm, %x) : f32[4, 4]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4, 4]
  %wa = _c10d_functional.wait_tensor.default(%a) : f32[4, 4]
  %wb = _c10d_functional.wait_tensor.default(%b) : f32[4, 4]
  %wh = _c10d_functional.wait_tensor.default(%h) : f32[4, 4]
  %wl1 = _c10d_functional.wait_tensor.default(%l1) : f32[2, 4]
  %wl0 = _c10d_functional.wait_tensor.default(%l0) : f32[2, 4]
  %z = aten.mul.Tensor(%wh, %y) : f32[4, 4]
  output([%w, %wa, %wb, %z, %wl0, %wl1])
"""

# A run adds to its buffer.
ACCUMULATES = """epweave text 1
graph
  %x = placeholder : f32[4] role=user which=x
  %b = placeholder : f32[4] role=buffer which=counts
  %y = aten.mul.Tensor(%x, %x) : f32[4]
  %z = aten.add_.Tensor(%b, %y) : f32[4]
  output([%y])
"""

# A sum over ranks and a gradient, a sum over the rows of x; and the same of x in two parts. A
# buffer is written.
WHOLE = """epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : bf16[8, 16] role=user which=x
  %w = placeholder : bf16[16, 16] role=parameter which=w
  %b = placeholder : f32[16] role=buffer which=sums
  %h = aten.mm.default(%x, %w) : bf16[8, 16] @layers.0.mlp
  %g = _c10d_functional.all_reduce.default(%h, "sum", "7") : bf16[8, 16]
  %r = _c10d_functional.wait_tensor.default(%g) : bf16[8, 16]
  %y = aten.mul.Tensor(%r, %x) : bf16[8, 16]
  %t = aten.t.default(%x) : bf16[16, 8]{1, 16}
  %dw = aten.mm.default(%t, %y) : bf16[16, 16] @layers.0.mlp
  %s = aten.sum.dim_IntList(%w, [0]) : bf16[16]
  %c = aten.add_.Tensor(%b, %s) : f32[16]
  output([%y, %dw])
"""
PARTS = """epweave text 1
group 7 ranks=[0, 1]
origins %x = x, %w = w, %h = aten.mm.default, %g = _c10d_functional.all_reduce.default, %r = _c10d_functional.wait_tensor.default, %y = aten.mul.Tensor, %t = aten.t.default, %dw = aten.mm.default
graph
  %x = placeholder : bf16[8, 16] role=user which=x from(chunk kept %x)
  %w = placeholder : bf16[16, 16] role=parameter which=w from(chunk kept %w)
  %b = placeholder : f32[16] role=buffer which=sums
  %x0 = aten.slice.Tensor(%x, 0, 0, 4) : bf16[4, 16] from(chunk split %x 0/2)
  %x1 = aten.slice.Tensor(%x, 0, 4, 8) : bf16[4, 16]+64 from(chunk split %x 1/2)
  %h0 = aten.mm.default(%x0, %w) : bf16[4, 16] @layers.0.mlp from(chunk body %h 0/2)
  %h1 = aten.mm.default(%x1, %w) : bf16[4, 16] @layers.0.mlp from(chunk body %h 1/2)
  %g0 = _c10d_functional.all_reduce.default(%h0, "sum", "7") : bf16[4, 16] from(chunk body %g 0/2)
  %g1 = _c10d_functional.all_reduce.default(%h1, "sum", "7") : bf16[4, 16] from(chunk body %g 1/2)
  %r0 = _c10d_functional.wait_tensor.default(%g0) : bf16[4, 16] from(chunk body %r 0/2)
  %r1 = _c10d_functional.wait_tensor.default(%g1) : bf16[4, 16] from(chunk body %r 1/2)
  %y0 = aten.mul.Tensor(%r0, %x0) : bf16[4, 16] from(chunk body %y 0/2)
  %y1 = aten.mul.Tensor(%r1, %x1) : bf16[4, 16] from(chunk body %y 1/2)
  %y = aten.cat.default([%y0, %y1]) : bf16[8, 16] from(chunk materialize %y)
  %t0 = aten.t.default(%x0) : bf16[16, 4]{1, 16} from(chunk body %t 0/2)
  %t1 = aten.t.default(%x1) : bf16[16, 4]{1, 16}+64 from(chunk body %t 1/2)
  %dw0 = aten.mm.default(%t0, %y0) : bf16[16, 16] @layers.0.mlp from(chunk body %dw 0/2)
  %dw1 = aten.mm.default(%t1, %y1) : bf16[16, 16] @layers.0.mlp from(chunk body %dw 1/2)
  %dw = aten.add.Tensor(%dw0, %dw1) : bf16[16, 16] from(chunk materialize %dw)
  %s = aten.sum.dim_IntList(%w, [0]) : bf16[16]
  %c = aten.add_.Tensor(%b, %s) : f32[16]
  output([%y, %dw])
"""

WRONG_INDEX = """epweave text 1
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %i = aten.full.default([3], 9) : i64[3]
  %y = aten.index.Tensor(%x, [%i]) : f32[3, 4] @layers.0.moe src="model.py:3 in forward: x[i]"
  %z = aten.add.Tensor(%y, %y) : f32[3, 4]
  output([%z])
"""


def check_refusals():
    code, _, errors = run("run", GRAPH, "--device", "gpu")
    expect(code == 2 and "is no device" in errors, f"a device that does not exist: exit {code}: {errors}")
    code, _, errors = run("run", GRAPH, "--device", "cuda", EPWEAVE_CUDA="/nonexistent.so")
    expect(code == 77 and "has no CUDA part" in errors, f"without the CUDA part: exit {code}: {errors}")
    code, output, errors = run("run", GRAPH, "--device", "cuda:99", "--json", EPWEAVE_CUDA=REPLAY)
    expect(
        code == 77 and "cannot be loaded" in errors and "replay.no-device" in output,
        f"a CUDA part that is none: exit {code}: {errors}",
    )
    code, _, errors = run("run", GRAPH, "--device", "cuda:99")
    expect(code == 77 and "replay.no-device" in errors, f"a GPU that is not there: exit {code}: {errors}")


def check_collectives(folder):
    graph = folder / "collectives.txt"
    graph.write_text(COLLECTIVES)
    code, output, errors = run("check", graph, graph, "--device-a", "cpu", "--device-b", "emulated", "--poison")
    expect(code == 0 and "outputs: 12 equal, 0 " in output, f"collectives: exit {code}: {output}{errors}")
    _, expected, _ = run("run", graph, "-q")
    for seed in range(5):
        _, found, _ = run("run", graph, "--device", "emulated", "--jitter", seed, "--poison", "-q")
        expect(found == expected and expected, f"seed {seed}: on the CPU:\n{expected}emulated:\n{found}")


def check_watched(folder):
    """Every value is hashed on the device: what is compared, and what is said of it, is as on the CPU."""
    texts = {
        "whole": WHOLE,
        "parts": PARTS,
        "swapped": PARTS.replace("[%y0, %y1]", "[%y1, %y0]"),
        "stale": PARTS.replace("%y1 = aten.mul.Tensor(%r1, %x1)", "%y1 = aten.mul.Tensor(%h1, %x1)"),
        "buffer": WHOLE.replace("(%b, %s)", "(%b, %b)"),
    }
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)

    def report(b, *options):
        code, output, errors = run("check", folder / "whole.txt", folder / f"{b}.txt", "--json", *options)
        found = json.loads(output) if output else errors
        for told in ("seconds", "device_a", "device_b", "environment"):
            found.pop(told, None)
        return code, found, found.pop("bounds")

    # Where sums are regrouped: "device" is said of one that is not the CPU.
    made = {(device, bounds): bounds if bounds == "cpu" or device == "emulated" else "cpu"
            for device in ("cpu", "emulated") for bounds in ("cpu", "device")}
    verdicts = {}
    for b in texts:
        *by_cpu, _ = report(b, "--bounds", "cpu")
        for (device, bounds), place in made.items():
            *found, where = report(b, "--bounds", bounds, "--device", device, "--poison")
            expect(found == by_cpu, f"{b}, bounds by {device}, {bounds}: {found}\nby the CPU: {by_cpu}")
            regroups = b not in ("whole", "buffer")
            expect(where == (place if regroups else None), f"{b}, bounds by {device}, {bounds}: said of {where}")
        for bounds in ("cpu", "none"):
            options = ("--bounds", bounds)
            expected = report(b, *options)
            verdicts[b, bounds] = expected[1]["verdict"]
            for devices in (("--device", "emulated", "--poison"), ("--device-b", "emulated"), ("--device-a", "emulated")):
                found = report(b, *options, *devices)
                expect(found == expected, f"{b} {options} {devices}: {found}\non the CPU: {expected}")
    right = {("whole", "cpu"): "same", ("whole", "none"): "same", ("parts", "cpu"): "same", ("parts", "none"): "not verified"}
    for pair, verdict in verdicts.items():
        expect(verdict == right.get(pair, "different"), f"{pair}: {verdict}")
    reference = ("--reference", folder / "parts.txt")
    expect(report("parts", *reference, "--device", "emulated")[:2] == report("parts", *reference)[:2], "with a reference")


def check_fault(folder):
    """What a kernel refuses is said as on the CPU, with its node, though the host learns it later."""
    graph = folder / "wrong.txt"
    graph.write_text(WRONG_INDEX)
    code, _, errors = run("run", graph, "--ranks", 1, "--device", "emulated")
    _, _, expected = run("run", graph, "--ranks", 1)
    expect(code == 1 and "%y = aten.index.Tensor in layers.0.moe" in errors, f"a fault: exit {code}: {errors}")
    expect(errors == expected, f"on the CPU:\n{expected}emulated:\n{errors}")
    _, _, errors = run("run", graph, "--ranks", 1, "--device", "emulated", "--cuda-graphs")
    expect(errors == expected, f"on the CPU:\n{expected}emulated, graphs:\n{errors}")


def check_same_inputs(folder):
    """Each run of several starts from the same inputs, whatever the one before wrote into its buffers."""
    graph = folder / "accumulates.txt"
    graph.write_text(ACCUMULATES)
    _, expected, _ = run("run", graph, "--ranks", 1, "-q")
    for options in (["--device", "cpu"], ["--device", "emulated"], ["--device", "emulated", "--cuda-graphs"]):
        code, found, errors = run("run", graph, "--ranks", 1, "-q", "--repeat", 3, *options)
        expect(code == 0 and found == expected, f"{options}: exit {code}: {found}{errors}, of one run: {expected}")


def check_graphs(folder):
    """Stretches launched as graphs: the same bits, captured in the second run, launched again in the third."""
    graph = folder / "collectives.txt"
    _, expected, _ = run("run", graph, "-q")
    for options in (["--jitter", 1, "--poison"], ["--jitter", 2], []):
        code, found, errors = run(
            "run", graph, "--device", "emulated", "--cuda-graphs", "--warm-up", 1, "--repeat", 2, *options
        )
        expect(code == 0 and found == expected, f"graphs {options}: exit {code}: {found}{errors}")
    expect(" captured, 0 updated, " in errors and "a step: " in errors, f"graphs: {errors}")
    _, output, _ = run("run", graph, "--device", "emulated", "--cuda-graphs", "--repeat", 3, "--json", "--poison")
    _, steps, _ = run("steps", graph, "--cuda-graphs", "--json")
    stretches = json.loads(steps)["graphs"]
    expect(stretches and all(s["until"] and s["end_step"] > s["first_step"] for s in stretches), stretches)
    for rank in json.loads(output)["ranks"]:
        use = rank["cuda_graphs"]
        expect(use["stretches"] == len(stretches), use)
        expect(use["steps_in_stretches"] == sum(s["launches"] for s in stretches) <= use["steps_that_launch"], use)
        expect(use["instantiated"] > 0 and use["updated"] == 0, use)
        expect(use["replayed"] == use["seen_first"] == use["instantiated"] and use["kernels"] > use["replayed"], use)
        expect(use["interruptions"] == {} and use["refusals"] == {}, use)
        expect(len(rank["step_seconds"]) == 3 and min(rank["step_seconds"]) > 0, rank["step_seconds"])
    _, found, errors = run("run", graph, "--device", "emulated", "--cuda-graphs", "--poison")
    expect(found == expected and "give --repeat" in errors, f"graphs, one run: {found}{errors}")
    text = run("steps", graph, "--cuda-graphs")[1]
    expect(text.count("graph  ") == text.count("end    ") == len(stretches), text)
    plain = run("steps", graph)[1]
    expect([line for line in text.splitlines() if line[:7] not in ("graph  ", "end    ")] == plain.splitlines(), text)


# One rank alone has spans; the host waits for the places of the mask.
MEASURED = """epweave text 1
group 7 ranks=[0, 1]
symbol u0 hint=8 unbacked
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %y = aten.mm.default(%x, %x) : f32[4, 4]
  %g = _c10d_functional.all_reduce.default(%y, "sum", "7") : f32[4, 4]
  %z = aten.neg.default(%y) : f32[4, 4]
  %u = aten.neg.default(%z) : f32[4, 4]
  %m = aten.gt.Scalar(%x, 0.0) : b8[4, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4, 4]
  output([%w, %u, %p])
"""


def check_measured_rank(folder):
    """Spans of a rank that is measured alone: which, how many, and what the files say about them."""
    graph, costs, timeline = folder / "measured.txt", folder / "costs.json", folder / "timeline.json"
    graph.write_text(MEASURED)
    _, expected, _ = run("run", graph, "-q")
    for device, waits in (("cpu", []), ("emulated", ["p"])):
        code, found, errors = run(
            "run", graph, "--device", device, "--warm-up", 1, "--repeat", 2, "--costs", costs, "--timeline", timeline,
            "--measure-rank", 1, "--poison",
        )  # fmt: skip
        expect(code == 0 and found == expected, f"measured alone, {device}: exit {code}: {found}{errors}")
        expect("rank 1 alone: 5 nodes take " in errors and "a step: " not in errors, errors)
        expect(("; in 1 of them the host waits" in errors) == bool(waits), errors)
        report = json.loads(costs.read_text())
        alone = report["measured_on"]["alone"]
        expect((alone["rank"], alone["ranks"], alone["nodes"], alone["host_waits"]) == (1, 2, 5, len(waits)), alone)
        expect("one node at a time" in alone["how"] and alone["microseconds"] > 0, alone)
        rows = [(o["op"], o["operands"], o["samples"], o.get("host_waits", False)) for o in report["ops"]]
        mask = "f32[4, 4], b8[4, 4]"
        expect(
            rows
            == [
                ("aten.gt.Scalar", "f32[4, 4]", 2, False),
                ("aten.index.Tensor", mask, 2, bool(waits)),
                ("aten.mm.default", "f32[4, 4], f32[4, 4]", 2, False),
                ("aten.neg.default", "f32[4, 4]", 4, False),
            ],
            rows,
        )
        expect(report["ranks"] == 1 and report["collectives"] == [], report)
        events = json.loads(timeline.read_text())
        ranks = events["otherData"]["ranks"]
        expect(len(ranks) == 1 and ranks[0]["rank"] == 1 and ranks[0]["start"] == 0, ranks)
        expect(events["otherData"]["measured_on"] == report["measured_on"], events["otherData"])
        spans = [e for e in events["traceEvents"] if e["ph"] == "X"]
        names = [(e["pid"], e["args"]["node"]) for e in spans]
        expect(names == [(1, n) for n in ("y", "z", "u", "m", "p", "g")], names)
        expect([e["args"]["node"] for e in spans if "host_waits" in e["args"]] == waits, spans)
        for before, after in zip(spans, spans[1:]):
            expect(before["ts"] + before["dur"] <= after["ts"] + 1e-6, f"{before} {after}")


def check_measured_rank_refusals(folder):
    graph, costs = folder / "measured.txt", folder / "costs.json"
    for arguments, message in (
        (["--measure-rank", 2, "--costs", costs], "--measure-rank 2: the ranks are 0 to 1"),
        (["--measure-rank", 0], "give --timeline FILE or --costs FILE"),
        (["--measure-rank", 0, "--costs", costs, "--transport", "nccl"], "--measure-rank is for virtual ranks"),
        (["--measure-rank", 0, "--costs", costs, "--cuda-graphs", "--device", "emulated"], "--costs times every node"),
    ):
        code, _, errors = run("run", graph, *arguments)
        expect(code == 2 and message in errors, f"{arguments}: exit {code}: {errors}")


def check_graph_refusals(folder):
    graph = folder / "collectives.txt"
    for arguments, message in (
        (["run", graph, "--cuda-graphs"], "give --device cuda"),
        (["run", graph, "--nvtx"], "--nvtx is a GPU's: give --device cuda"),
        (["run", graph, "--cuda-graphs", "--device", "emulated", "--timeline", folder / "t"], "--timeline times every"),
        (["run", graph, "--cuda-graphs", "--device", "emulated", "--costs", folder / "c"], "--costs times every"),
        (["check", graph, graph, "--cuda-graphs", "--device", "emulated"], "--cuda-graphs is of run"),
    ):
        code, _, errors = run(*arguments)
        expect(code == 2 and message in errors, f"{arguments}: exit {code}: {errors}")


def check_step(folder):
    """A MoE step, 4 ranks, memory poisoned, ranks delayed: loss, gradients and buffers have the same bits."""
    step = folder / "step.epw"
    resize = ["resize", ROOT / "testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz", "--set", "layers=2", "--set", "tokens=256"]
    subprocess.run([os.environ.get("EPWEAVE") or ROOT / "build/release/bin/epweave", *resize, "-q", "-o", step], check=True)
    _, expected, _ = run("run", step, "-q")
    expect(expected.count("loss") == 4, f"on the CPU: {expected}")
    code, found, errors = run(
        "run", step, "--device", "emulated", "--poison", "--jitter", "7", "--deadline", "1200", "-q"
    )
    expect(code == 0 and found == expected, f"exit {code}: {errors}\non the CPU:\n{expected}emulated:\n{found}")


if __name__ == "__main__":
    check_refusals()
    with tempfile.TemporaryDirectory() as name:
        check_collectives(pathlib.Path(name))
        check_watched(pathlib.Path(name))
        check_fault(pathlib.Path(name))
        check_same_inputs(pathlib.Path(name))
        check_graphs(pathlib.Path(name))
        check_graph_refusals(pathlib.Path(name))
        check_measured_rank(pathlib.Path(name))
        check_measured_rank_refusals(pathlib.Path(name))
        if "--step" in sys.argv:
            check_step(pathlib.Path(name))
    print("devices: all as expected")
