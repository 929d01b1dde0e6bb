#!/usr/bin/env python3
"""`epweave-replay check --transport nccl`: two graphs compared by ranks that are processes, without GPUs.

NCCL's and the GPU's places are taken as replay_processes.py says. EPWEAVE names epweave, which divides the graph of a
mixture of experts. With --graphs A B those graphs of 4 ranks are compared too, on all ranks here and by processes.
"""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

from replay_processes import CLEAN, finish, free_port, start_command, torchrun, write_tensors
from replay_tool import REPLAY, expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMULATED = ["--device", "emulated"]


def start_ranks(ranks, *arguments, of_rank=None, command="check"):
    """`of_rank`: rank to more arguments and variables."""
    port, of_rank = free_port(), of_rank or {}
    processes = []
    for rank in range(ranks):
        more, variables = of_rank.get(rank, ([], {}))
        processes.append(start_command(command, [*arguments, *more], {**torchrun(rank, ranks, port), **variables}))
    return processes


def check_processes(ranks, *arguments, of_rank=None):
    return finish(start_ranks(ranks, *arguments, "--deadline", 30, *EMULATED, of_rank=of_rank))


def check_here(*arguments):
    """On virtual ranks."""
    result = subprocess.run(
        [REPLAY, "check", *map(str, arguments)], capture_output=True, text=True, check=False, env=CLEAN
    )
    return result.returncode, result.stdout, result.stderr


def strip(report):
    """Of a report in JSON, what does not depend on how the ranks met."""
    report = json.loads(report) if isinstance(report, str) else report
    report.pop("environment")
    report.pop("seconds")
    for rank in report["ranks"]:
        rank.pop("environment", None)
    # Not known where collectives go between processes (docs/replay.md).
    report.pop("by_bounds_alone", None)
    report.pop("bounds", None)  # processes make them on the CPU
    for output in report.get("outputs_not_equal", []):
        output.pop("share_before_rounding", None)
    return report


# --- graphs ---


def moe(ranks):
    """Tokens go to the experts' ranks that their numbers decide and come back; a gradient of the weights is reduced over
    all ranks, gathered, and reduced again."""
    n = range(ranks)
    at, ones = "@layers.0.moe", [1] * ranks
    sends, receives = ", ".join(f"%s{i}" for i in n), ", ".join(f"%r{i}" for i in n)
    sent, arrived = " + ".join(f"s{i}" for i in n), " + ".join(f"r{i}" for i in n)
    elements = ", ".join("i64[]" + (f"+{i}" if i else "") for i in n)
    splits = "".join(
        f"  %{source}{i} = operator.getitem(%{source}, {i}) : i64[]" + (f"+{i}" if i else "") + f" {at}\n"
        f"  %{kind}{i} = aten._local_scalar_dense.default(%{source}{i}) : SymInt({kind}{i}) {at} bind({kind}{i})\n"
        for kind, source in (("s", "a"), ("r", "b"))
        for i in n
    )
    size = '{"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0}'
    symbols = "".join(f"symbol s{i} unbacked\nsymbol r{i} unbacked\n" for i in n[:-1])
    return f"""epweave text 1
group ep ranks={list(n)} description=mesh_ep axes=[ep]
symbol u0 range=[4, 64] hint=32 unbacked asserts=[Eq(Mod(u0, 32), 0)]
{symbols}symbol s{ranks - 1} unbacked asserts=["Eq({sent}, u0)"]
symbol r{ranks - 1} unbacked
graph
  %k = placeholder : i64[u0] role=user which=tokens bind(u0, {size})
  %emb = placeholder : f32[64, 8] role=parameter fqn=tok_embeddings.weight
  %w = placeholder : f32[8, 8] role=parameter fqn=layers.0.moe.w
  %bias = placeholder : f32[8, 8] role=user which=bias
  %row = placeholder : i64[1] role=user which=labels
  %x = aten.embedding.default(%emb, %k) : f32[u0, 8] @tok_embeddings
  %ids = aten.remainder.Scalar(%k, {ranks}) : i64[u0] {at}
  %idsu = aten.reshape.default(%ids, [-1, 1]) : i64[u0, 1] {at}
  %z2 = aten.slice.Tensor(%x, 1, 0, {ranks}) : f32[u0, {ranks}]{{8, 1}} {at}
  %zm = aten.zeros_like.default(%z2, dtype=b8, memory_format=torch.contiguous_format) : b8[u0, {ranks}] {at}
  %marks = aten.scatter.value(%zm, -1, %idsu, True) : b8[u0, {ranks}] {at}
  %counts = aten.sum.dim_IntList(%marks, [0]) : i64[{ranks}] {at}
  %sort = aten.sort.stable(%ids, stable=True) : (i64[u0], i64[u0]) {at}
  %p = operator.getitem(%sort, 1) : i64[u0] {at}
  %rows = aten.index.Tensor(%x, [%p]) : f32[u0, 8] {at}
  %theirs = _c10d_functional.all_to_all_single.default(%counts, {ones}, {ones}, "ep") : i64[{ranks}] {at} token_count_exchange=dispatch
  %got = _c10d_functional.wait_tensor.default(%theirs) : i64[{ranks}] {at}
  %a = aten.unbind.int(%counts) : [{elements}] {at}
  %b = aten.unbind.int(%got) : [{elements}] {at}
{splits}  %sent = _c10d_functional.all_to_all_single.default(%rows, [{receives}], [{sends}], "ep") : f32[{arrived}, 8] {at} token_exchange=dispatch
  %arrived = _c10d_functional.wait_tensor.default(%sent) : f32[{arrived}, 8] {at}
  %h = aten.mm.default(%arrived, %w) : f32[{arrived}, 8] {at} ep=compute
  %act = aten.silu.default(%h) : f32[{arrived}, 8] {at} ep=compute
  %back = _c10d_functional.all_to_all_single.default(%act, [{sends}], [{receives}], "ep") : f32[{sent}, 8] {at} token_exchange=combine
  %y = _c10d_functional.wait_tensor.default(%back) : f32[{sent}, 8] {at}
  %zx = aten.zeros_like.default(%x, dtype=f32) : f32[u0, 8] {at}
  %o = aten.index_put.default(%zx, [%p], %y, True) : f32[u0, 8] {at}
  %t = aten.t.default(%arrived) : f32[8, {arrived}]{{1, 8}} {at}
  %dw = aten.mm.default(%t, %act) : f32[8, 8] {at}
  %rs = _c10d_functional.reduce_scatter_tensor.default(%dw, "avg", {ranks}, "ep") : f32[{8 // ranks}, 8]
  %rsw = _c10d_functional.wait_tensor.default(%rs) : f32[{8 // ranks}, 8]
  %ga = _c10d_functional.all_gather_into_tensor.default(%rsw, {ranks}, "ep") : f32[8, 8]
  %gaw = _c10d_functional.wait_tensor.default(%ga) : f32[8, 8]
  %ar = _c10d_functional.all_reduce.default(%gaw, "max", "ep") : f32[8, 8]
  %arw = _c10d_functional.wait_tensor.default(%ar) : f32[8, 8]
  %pr = _c10d_functional.all_reduce.default(%gaw, "product", "ep") : f32[8, 8]
  %prw = _c10d_functional.wait_tensor.default(%pr) : f32[8, 8]
  output([%o, %rsw, %arw, %prw])
"""


def replace(text, old, new):
    expect(text.count(old) == 1, f"'{old}' is there {text.count(old)} times in:\n{text}")
    return text.replace(old, new)


def line_of(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(f"  {start} ")]
    return line


class Files:
    """The whole graph and its parts for 2 and 4 ranks, and rewrites with faults."""

    def __init__(self, folder):
        self.folder = folder
        self.whole, self.parts = {}, {}
        for ranks in (2, 4):
            self.whole[ranks] = self.write(f"whole{ranks}.txt", moe(ranks))
            self.parts[ranks] = folder / f"parts{ranks}.txt"
            subprocess.run(
                [os.environ["EPWEAVE"], "rewrite", self.whole[ranks], "-p", "chunk{roots=layers.*.moe,dense}", "-o",
                 self.parts[ranks], "--to", "text"], check=True,
            )
        parts = self.parts[4].read_text()
        # Without the product of regrouped sums as an output.
        self.bounded = [
            self.write(f"bounded_{path.name}", replace(path.read_text(), ", %prw])", "])"))
            for path in (self.whole[4], self.parts[4])
        ]
        # The second part's expert adds a bias, which is 0 on all ranks but rank 2.
        line = line_of(parts, "%h_chunk1 =")
        wrong = line.replace("%w)", "%w_biased)")
        biased = "  %w_biased = aten.add.Tensor(%w, %bias) : f32[8, 8] from(chunk size %w)\n"
        self.biased = self.write("biased.txt", replace(parts, line + "\n", biased + wrong + "\n"))
        # A row is looked up that is there on all ranks but rank 1.
        lookup = "  %found = aten.embedding.default(%emb, %row) : f32[1, 8] @layers.0.moe from(chunk size %emb)\n"
        self.lookup = self.write("lookup.txt", replace(parts, line + "\n", lookup + line + "\n"))
        # The second part's rows go where those of the first one go.
        line = line_of(parts, "%sent_chunk1 =")
        self.mismatch = self.write(
            "mismatch.txt", replace(parts, line, line.replace("%s0_chunk1, %s1_chunk1", "%s1_chunk1, %s0_chunk1"))
        )
        self.inputs = folder / "inputs.safetensors"
        zeros, bias = struct.pack("<64f", *[0] * 64), struct.pack("<64f", 0.5, *[0] * 63)
        tensors = {f"rank{rank}/bias": ("F32", [8, 8], bias if rank == 2 else zeros) for rank in range(4)}
        rows = [3, 64, 5, 63]
        tensors.update({f"rank{rank}/labels": ("I64", [1], struct.pack("<q", rows[rank])) for rank in range(4)})
        write_tensors(self.inputs, tensors)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


# --- the same verdicts ---


def without_ideals(text):
    """A text report without what is said of values before rounding, as `strip` has it."""
    return "".join(line for line in text.splitlines(keepends=True) if "by these bounds alone" not in line)


def compare(ranks, arguments, code, here=None):
    """Processes against virtual ranks, as text and as JSON. `here`: other arguments of the virtual ranks."""
    found_code, expected, errors = check_here(*arguments, *(here or []))
    expect(found_code == code, f"{arguments} on virtual ranks: {found_code}: {expected}{errors}")
    results = check_processes(ranks, *arguments)
    expect([r[0] for r in results] == [code] * ranks, f"{arguments}: {results}")
    text = without_ideals(results[0][1])
    expect(text == without_ideals(expected), f"{arguments}: {text}\non virtual ranks:\n{expected}")
    expect(not any(output for _, output, _ in results[1:]), f"{arguments}: only rank 0 prints: {results}")
    return expected


def check_verdicts(files):
    for ranks in (2, 4):
        graphs = [files.whole[ranks], files.parts[ranks]]
        text = compare(ranks, graphs, 1)
        # Nothing bounds a product of regrouped sums.
        for line in (
            f"outputs: {ranks} equal, 0 reordered, {2 * ranks} sum-order, {ranks} unverified, 0 differs",
            f"nodes of rank 0-{ranks - 1}: ",
            "not verified",
        ):
            expect(line in text, f"no '{line}' in {text}")
    for more in ([], ["--data", "integer"]):
        compare(4, [*files.bounded, *more], 0)
    compare(4, [files.parts[4], files.parts[4]], 0)
    for more in (["--poison", "--jitter", 3], ["--seed", 5, "--report-types"]):
        compare(2, [files.whole[2], files.parts[2], *more], 1)


def check_report(files):
    """JSON, the reports of the ranks, and a reference."""
    for arguments in (
        [files.whole[4], files.parts[4], "--reference", files.biased],
        [files.whole[4], files.biased],
    ):
        arguments = [*arguments, "--inputs", files.inputs, "--json"]
        merged = {}
        for kind in ("processes", "virtual ranks"):
            folder = files.folder / f"reports of {kind}"
            folder.mkdir(exist_ok=True)
            if kind == "processes":
                results = check_processes(4, *arguments, "--report-dir", folder)
                expect(all(code == 1 for code, _, _ in results), f"{results}")
                merged[kind] = json.loads(results[0][1])
            else:
                code, output, errors = check_here(*arguments, "--report-dir", folder)
                expect(code == 1, errors)
                merged[kind] = json.loads(output)
        environment = merged["processes"]["environment"]
        expect(environment["transport"] == "nccl" and environment["launcher"] == "torchrun", environment)
        expect(merged["processes"]["ranks"][3]["environment"]["nccl_loaded"] == "2.28.9", merged["processes"]["ranks"])
        expect(strip(merged["processes"]) == strip(merged["virtual ranks"]), f"{merged}")
        for rank in range(4):
            of_rank = [
                json.loads((files.folder / f"reports of {kind}/rank{rank}.json").read_text()) for kind in merged
            ]
            expect(of_rank[0]["rank"] == rank and len(of_rank[0]["ranks"]) == 1, of_rank[0])
            expect(of_rank[0]["environment"]["transport"] == "nccl", of_rank[0])
            expect(of_rank[0]["ranks"] == [merged["virtual ranks"]["ranks"][rank]], f"{of_rank[0]} {merged}")
            expect(strip(of_rank[0]) == strip(of_rank[1]), f"rank {rank}: {of_rank}")


def check_devices(files):
    """The CPU's bits against the device's, each process on its own rank."""
    graphs = [files.whole[2], files.whole[2]]
    for a, b in (("cpu", "emulated"), ("emulated", "cpu")):
        devices = ["--device-a", a, "--device-b", b, "--deadline", 30]
        results = finish(start_ranks(2, *graphs, *devices))
        expect(all(code == 0 for code, _, _ in results), f"{devices}: {results}")
        expect(results[0][1] == check_here(*graphs)[1], f"{devices}: {results[0][1]}")
    for devices, message in (
        (["--device-a", "emulated", "--device-b", "cuda:1"], "over NCCL each process has one device"),
        (["--device", "cpu"], "--transport nccl needs --device cuda"),
        (["--device", "emulated", "--pin-rows"], "--pin-rows is of --math native"),
    ):
        (found,) = finish([start_command("check", [*graphs, *devices], torchrun(0, 2, 1))])
        expect(found[0] == 2 and message in found[2], f"{devices}: {found}")
    code, _, errors = check_here(*graphs, "--rank", 0)
    expect(code == 2 and "--rank is for ranks that are processes" in errors, f"a rank of this process: {errors}")
    # One process has nobody to meet.
    alone = files.write("alone.txt", """epweave text 1
group 7 ranks=[0]
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %g = _c10d_functional.all_reduce.default(%x, "sum", "7") : f32[4, 4]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4, 4]
  output([%w])
""")
    compare(1, [alone, alone], 0)


def check_native(files):
    """Products of the library that takes cuBLASLt's place: each rank's algorithms, and what lies behind them on all."""
    arguments = [files.whole[2], files.parts[2], "--math", "native"]
    compare(2, arguments, 1, EMULATED)
    arguments.append("--json")
    results = check_processes(2, *arguments)
    expected = strip(check_here(*arguments, *EMULATED)[1])
    expect(expected["library_kernels"]["changes"], "no product takes another algorithm")
    expect(strip(results[0][1]) == expected, f"{results[0][1]}\nnot {expected}")
    (found,) = finish([start_command(
        "check", [*arguments, *EMULATED, "--reference", files.parts[2]], torchrun(0, 2, free_port())
    )])
    expect(found[0] == 2 and "--math native compares two graphs on one device" in found[1] + found[2], f"{found}")


# --- what goes wrong ---


def check_fault(files):
    """A fault on one rank only: rank 0 names it, all processes say that the graphs differ."""
    arguments = [files.whole[4], files.biased, "--inputs", files.inputs]
    text = compare(4, arguments, 1)
    expect("first node that differs: rank 2: %h_chunk0 = aten.mm.default for %h in layers.0.moe" in text, text)
    expect(" ULP" in text and text.splitlines()[-1] == "different", text)

    # One bit that arrives otherwise on one rank: in the first run of B, and in the second one of A.
    plain = [files.whole[2], files.whole[2], *EMULATED, "--deadline", 30]
    per_run = 9  # exchanges; the second one brings the rows
    for number, last, line in (
        (per_run + 1, "different", "first node that differs: rank 1: %arrived ="),
        (2 * per_run + 1, "not verified", "A is not deterministic: it gave other bits the second time"),
    ):
        results = finish(start_ranks(2, *plain, of_rank={1: ([], {"EPWEAVE_SOCKET_NCCL": f"flip:{number}"})}))
        expect(all(code == 1 for code, _, _ in results), f"a flipped bit: {results}")
        expect(line in results[0][1] and results[0][1].splitlines()[-1] == last, f"a flipped bit: {results}")


def check_failures(files):
    """Where a rank fails while B runs, all processes end with the reason."""
    arguments = ["--inputs", files.inputs]
    for code, output, errors in check_processes(4, files.whole[4], files.mismatch, *arguments):
        expect(code == 1 and not output, f"splits that do not match: {code} {output}")
        expect("%sent_chunk1" in errors and "which expects" in errors, f"splits that do not match: {errors}")
    for rank, (code, output, errors) in enumerate(check_processes(4, files.whole[4], files.lookup, *arguments)):
        expect(code == 1 and not output, f"rank {rank}: {code} {output} {errors}")
        expect("rank 1: %found = aten.embedding.default in layers.0.moe" in errors, f"rank {rank}: {errors}")
        expect("64" in errors and (rank == 1 or f"here is rank {rank}" in errors), f"rank {rank}: {errors}")
    # Graphs that return other tensors cannot be compared: each process finds it.
    fewer = files.write("fewer.txt", replace(files.whole[2].read_text(), ", %prw])", "])"))
    for code, _, errors in check_processes(2, files.whole[2], fewer):
        expect(code == 3 and "the graphs return 4 and 3 values" in errors, f"fewer outputs: {code} {errors}")


def check_killed(files):
    """A rank that is killed in the middle of the check: another one's work hangs, so that the others wait."""
    for killed in (2, 0):
        processes = start_ranks(
            4, files.whole[4], files.parts[4], *EMULATED, "--deadline", 60,
            of_rank={1: ([], {"EPWEAVE_SOCKET_NCCL": "hang:12"})},
        )
        time.sleep(4)
        expect(all(process.poll() is None for process in processes), "the check goes on")
        began = time.time()
        processes[killed].send_signal(signal.SIGKILL)
        results = finish(processes, 60)
        expect(time.time() - began < 30, "the others end soon")
        for rank, (code, output, errors) in enumerate(results):
            expect(rank == killed or code == 1 and not output, f"rank {rank}: {code} {output} {errors}")
            expect(rank == killed or f"rank {killed}" in errors, f"rank {rank}: {errors}")
    # Nobody is killed: the watchdog ends all.
    results = finish(start_ranks(
        2, files.whole[2], files.parts[2], *EMULATED, "--deadline", 3,
        of_rank={1: ([], {"EPWEAVE_SOCKET_NCCL": "hang:12"})},
    ), 60)
    for rank, (code, _, errors) in enumerate(results):
        expect(code == 1 and "within 3 s" in errors, f"rank {rank} of a stuck check: {code} {errors}")


def check_rendezvous(files):
    """Processes that would compare something else."""
    graphs = [files.whole[2], files.parts[2], *EMULATED, "--deadline", 20]
    others = [
        ["--seed", 1], ["--data", "integer"], ["--report-types"], ["--poison"], ["--jitter", 2], ["--device-a", "cpu"],
        ["--reference", files.parts[2]], ["--math", "native"],
    ]
    for other in others:
        results = finish(start_ranks(2, *graphs, of_rank={1: (other, {})}), 60)
        for code, _, errors in results:
            expect(code == 4 and "runs something else than rank 0" in errors, f"{other}: {code} {errors}")
    for a, b in ((files.whole[2], files.whole[2]), (files.parts[2], files.whole[2])):
        port = free_port()
        results = finish([
            start_command("check", graphs, torchrun(0, 2, port)),
            start_command("check", [a, b, *graphs[2:]], torchrun(1, 2, port)),
        ], 60)
        expect(all(code == 4 and "runs something else" in e for code, _, e in results), f"other graphs: {results}")
    port = free_port()
    results = finish([
        start_command("check", graphs, torchrun(0, 2, port)),
        start_command("run", [files.whole[2], *graphs[2:]], torchrun(1, 2, port)),
    ], 60)
    expect(all(code == 4 and "runs something else" in e for code, _, e in results), f"another command: {results}")
    # Worlds of different sizes: no process waits for another.
    for code, _, errors in check_processes(2, files.whole[2], files.whole[4]):
        expect(code == 2 and "the graphs are of 2 and 4 ranks" in errors, f"{code} {errors}")


def check_groups(files):
    """A and B call different groups by one name: each has its own communicators."""
    text = """epweave text 1
group near ranks=[0, 1]
group far ranks=[0, 2]
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %n = _c10d_functional.all_reduce.default(%x, "sum", "near") : f32[4, 4]
  %nw = _c10d_functional.wait_tensor.default(%n) : f32[4, 4]
  %f = _c10d_functional.all_reduce.default(%nw, "sum", "far") : f32[4, 4]
  %fw = _c10d_functional.wait_tensor.default(%f) : f32[4, 4]
  output([%fw])
"""
    a = files.write("groups_a.txt", text)
    renamed = text.replace("near", "?").replace("far", "near").replace("?", "far")
    compare(4, [a, files.write("groups_b.txt", renamed), "--ranks", 4], 0)
    # The same names, and the launches on the other groups: a sum over all ranks again, in another
    # order.
    swapped = text.replace("near ranks=[0, 1]", "near ranks=[0, 2]").replace("far ranks=[0, 2]", "far ranks=[0, 1]")
    compare(4, [a, files.write("groups_c.txt", swapped), "--ranks", 4], 1)


def check_example(files):
    result = subprocess.run(
        [ROOT / "scripts/launch_examples/no_launcher.sh", *files.bounded], capture_output=True, text=True, check=False,
        env={**CLEAN, "RANKS": "4", "DEVICE": "emulated", "COMMAND": "check"},
    )
    code, expected, _ = check_here(*files.bounded)
    expect((result.returncode, without_ideals(result.stdout)) == (code, without_ideals(expected)),
           f"no_launcher: {result} {expected}")


def check_graphs(a, b):
    """Any two graphs of 4 ranks."""
    expected = strip(check_here(a, b, "--json")[1])
    began = time.time()
    results = finish(start_ranks(4, a, b, *EMULATED, "--json", "--deadline", 600), 3000)
    print(f"{results[0][0]}: {time.time() - began:.0f} s {results[0][2]}")
    expect(strip(results[0][1]) == expected, f"{results}\nnot {expected}")
    print(f"{expected['verdict']} by 4 processes as by 4 virtual ranks")


def main():
    if "--graphs" in sys.argv:
        at = sys.argv.index("--graphs")
        check_graphs(sys.argv[at + 1], sys.argv[at + 2])
        return
    with tempfile.TemporaryDirectory() as name:
        CLEAN["TMPDIR"] = name  # where a killed process leaves NCCL's log
        files = Files(pathlib.Path(name))
        for check in (check_verdicts, check_report, check_devices, check_native, check_fault, check_failures,
                      check_killed, check_rendezvous, check_groups, check_example):
            began = time.time()
            check(files)
            print(f"{check.__name__}: as expected, {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
