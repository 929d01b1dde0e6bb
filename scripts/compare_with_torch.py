#!/usr/bin/env python3
"""Run a graph by epweave-replay and by PyTorch on the CPU, on the same inputs, and compare every output.

    scripts/compare_with_torch.py GRAPH... [--table] [--seed S] [--keep FOLDER] [--replay BIN]

epweave-replay makes the inputs, runs the graph on virtual ranks and writes both (--save-inputs, --outputs). PyTorch runs
the graph that epweave_fx.load gives, with one process per rank and gloo between them, on those inputs, and
writes its outputs. Files pass through the `safetensors` package in both directions. Needs torch and safetensors, and
torchtitan where the graph has other operators of it than `deterministic_scatter_add`.

The two round differently: PyTorch adds in other orders and rounds to bfloat16 in other places. So outputs are compared by
the relative error |a - b| / |a| (Euclidean) and must be within --loss, --gradient and --buffer. Where two experts have
nearly the same score a token may go to the other one; what it adds to the gradients of experts, router and the norm before
them is then another row altogether, and of n rows m others make an error of about sqrt(2 m / n): --routed. Integers must
be the same.

--table prints Markdown: outputs of the same name in all layers, and on all ranks, in one row with their largest error.
Exit codes: 0 all within the bounds, 1 one is not or a run failed, 2 usage.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLLECTIVES = "_c10d_functional."
ROUTED = re.compile(r"\.moe\.(routed_experts|router)\.|\.ffn_norm\.")


# --- one rank of PyTorch ---

def create_groups(report, rank):
    """name in the graph -> name in this process, of the groups that this rank is in."""
    import torch.distributed as dist
    names = {}
    for name, members in sorted((name, members) for name, members in report["groups"].items() if members):
        for ranks in sorted({tuple(of_rank) for of_rank in members}):  # all ranks make all groups, in one order
            group = dist.new_group(list(ranks))
            if rank in ranks:
                names[name] = group.group_name
    return names


def register_operators():
    """torchtitan's operators; where torchtitan is not installed, the one of its training graphs that computes."""
    import torch
    try:
        import torchtitan.experiments.graph_trainer  # noqa: F401
    except ImportError:
        @torch.library.custom_op("torchtitan::deterministic_scatter_add", mutates_args=())
        def add(out: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
            return out.scatter_add(0, index, src)
        add.register_fake(lambda out, index, src: torch.empty_like(out))


def replace_operators(module):
    """Operators without a CPU kernel by PyTorch's own definition of them in terms of others."""
    import torch
    from torch._decomp import decomposition_table
    for node in module.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        has_kernel = any(torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), key) for key in
                         ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"))
        if not has_kernel and node.target in decomposition_table:
            node.target = decomposition_table[node.target]


def rename_groups(module, names):
    for node in module.graph.nodes:
        if node.op != "call_function" or not str(node.target).startswith(COLLECTIVES) or not node.args:
            continue
        if isinstance(node.args[-1], str) and node.args[-1] in names:
            node.args = (*node.args[:-1], names[node.args[-1]])
    module.recompile()


def list_names(message):
    """(names of the inputs, names of the outputs) in the files, without the rank; see src/replay/inputs/input_files.h."""
    inputs, outputs = message["inputs"], message["outputs"]
    called = [entry.get("fqn") or entry.get("which") for entry in inputs]
    results = ["/".join(filter(None, (entry.get("role") or f"output/{i}", entry.get("fqn"))))
               for i, entry in enumerate(outputs)]
    return called, results


def make_arguments(module, tensors, called, rank):
    import torch
    arguments, placeholders = [], [node for node in module.graph.nodes if node.op == "placeholder"]
    for node, name in zip(placeholders, called):
        recorded = node.meta.get("val")
        if isinstance(recorded, torch.SymInt):
            arguments.append(recorded.node.hint)
        elif not isinstance(recorded, torch.Tensor):
            arguments.append(None)  # a mesh: looked at by nobody
        else:
            key = f"rank{rank}/{name}"
            stored = tensors[key if key in tensors else f"rank{rank}/{node.name}"]
            tensor = torch.empty_strided(stored.shape, [int(s) for s in recorded.stride()], dtype=stored.dtype)
            arguments.append(tensor.copy_(stored))
    return arguments


def time_ops(module, arguments, runs, device):
    """target -> [calls, seconds] of one step: PyTorch's ops one after the other, the mean over `runs` after one to warm up.

    On a GPU events are recorded around each op. Collectives go through the CPU's memory (gloo) and are not timed."""
    import torch
    is_gpu = device != "cpu"
    events, times = [], collections.defaultdict(lambda: [0, 0.0])

    def name_of(target):  # as the graph file has it
        if isinstance(target, torch._ops.HigherOrderOperator):
            return f"higher_order.{target.name()}"
        return str(target) if isinstance(target, torch._ops.OpOverload) else target.__name__

    class Timed(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if str(target).startswith(COLLECTIVES):
                move = (lambda x: x.cpu() if isinstance(x, torch.Tensor) else x) if is_gpu else (lambda x: x)
                result = target(*torch.utils._pytree.tree_map(move, args), **torch.utils._pytree.tree_map(move, kwargs))
                return result.to(device) if "wait_tensor" in str(target) else result
            if is_gpu:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                result = super().call_function(target, args, kwargs)
                end.record()
                events.append((name_of(target), begin, end))
                return result
            begin = time.perf_counter()
            result = super().call_function(target, args, kwargs)
            events.append((name_of(target), begin, time.perf_counter()))
            return result

    with torch.no_grad():
        for run in range(runs + 1):
            events.clear()
            Timed(module).run(*arguments)
            if is_gpu:
                torch.cuda.synchronize()
            for target, begin, end in events if run else []:
                times[target][0] += 1
                times[target][1] += begin.elapsed_time(end) / 1e3 if is_gpu else end - begin
    return {target: [calls / runs, seconds / runs] for target, (calls, seconds) in times.items()}


def time_steps(module, arguments, runs, device):
    """Seconds of whole steps, as eager PyTorch runs them, after one to warm up."""
    import torch
    seconds = []
    with torch.no_grad():
        for _ in range(runs + 1):
            begin = time.perf_counter()
            module(*arguments)
            if device != "cpu":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def run_rank(graph, folder):
    """EPWEAVE_TORCH_DEVICE: where; EPWEAVE_TORCH_RUNS: ops are timed as often, and outputs not written."""
    import torch
    import torch.distributed as dist
    from safetensors.torch import load_file, save_file
    sys.path.insert(0, str(ROOT / "scripts"))
    import epweave_fx
    register_operators()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    report = json.loads((folder / "replay.json").read_text())
    message = epweave_fx.read_file(str(graph))
    called, results = list_names(message)
    device, runs = os.environ.get("EPWEAVE_TORCH_DEVICE", "cpu"), int(os.environ.get("EPWEAVE_TORCH_RUNS", "0"))
    module = epweave_fx.load(str(graph), device=device)
    if device == "cpu":
        replace_operators(module)
    rename_groups(module, create_groups(report, rank))
    arguments = make_arguments(module, load_file(folder / "inputs.safetensors"), called, rank)
    if runs:
        arguments = [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]
        found = {"ops": time_ops(module, arguments, runs, device)}
        if world == 1:  # collectives go through the CPU, and ranks take turns on the device
            found["steps"] = time_steps(module, arguments, runs, device)
        (folder / f"torch{rank}.json").write_text(json.dumps(found))
        dist.barrier()
        dist.destroy_process_group()
        return
    dist.barrier()
    wall, processor = time.perf_counter(), time.process_time()
    with torch.no_grad():
        outputs = module(*arguments)
    seconds = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
    found = {}
    for name, value in [*zip(results, outputs), *((f"buffer/{name}", argument) for name, argument, entry in
                                                  zip(called, arguments, message["inputs"])
                                                  if entry.get("role") == "buffer")]:
        if isinstance(value, torch.Tensor):
            uses = sum(key.split("#")[0] == f"rank{rank}/{name}" for key in found)
            found[f"rank{rank}/{name}" + (f"#{uses + 1}" if uses else "")] = value.detach().contiguous().clone()
    save_file(found, folder / f"torch{rank}.safetensors")
    (folder / f"torch{rank}.json").write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


# --- all of it ---

def run_replay(args, graph, folder):
    command = [str(args.replay), "run", str(graph), "--json", "-q", "--seed", str(args.seed),
               "--save-inputs", str(folder / "inputs.safetensors"), "--outputs", str(folder / "replay.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{graph}: epweave-replay: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    (folder / "replay.json").write_text(done.stdout)
    return json.loads(done.stdout)


def run_torch(graph, folder, world, device="cpu", runs=0):
    """What each rank tells; with `runs` the times of its ops."""
    # Some virtual machines announce AMX and refuse its instructions: oneDNN gets the set below it.
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", **os.environ, "WORLD_SIZE": str(world),
                   "OMP_NUM_THREADS": "1", "EPWEAVE_TORCH_DEVICE": device, "EPWEAVE_TORCH_RUNS": str(runs)}
    workers = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--rank-of", str(folder), str(graph)],
                                env={**environment, "RANK": str(rank)}) for rank in range(world)]
    codes = []
    try:
        while None in (codes := [worker.poll() for worker in workers]):
            if any(codes):
                break  # the others would wait for it
            time.sleep(0.2)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(codes):
        sys.exit(f"{graph}: PyTorch failed: exit codes {codes}")
    return [json.loads((folder / f"torch{rank}.json").read_text()) for rank in range(world)]


def compare(folder, world):
    """(name without rank, relative error, whether all bits are the same), of each output of each rank."""
    import torch
    from safetensors.torch import load_file
    ours = load_file(folder / "replay.safetensors")
    theirs = {key: value for rank in range(world) for key, value in load_file(folder / f"torch{rank}.safetensors").items()}
    if ours.keys() != theirs.keys():
        sys.exit(f"other outputs: {sorted(ours.keys() ^ theirs.keys())[:8]}")
    rows = []
    for key, a in ours.items():
        b, name = theirs[key], key.split("/", 1)[1]
        if a.dtype != b.dtype or a.shape != b.shape:
            sys.exit(f"{key}: {a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}")
        wide = torch.complex128 if a.is_complex() else torch.float64
        size = a.to(wide).norm().item()
        error = (a.to(wide) - b.to(wide)).norm().item()
        rows.append((name, error / size if size else error, torch.equal(a, b), a.is_floating_point() or a.is_complex()))
    return rows


def bound_of(args, name, is_real):
    if not is_real:
        return 0.0
    if name == "loss":
        return args.loss
    if name.startswith("buffer/"):
        return args.buffer
    return args.routed if ROUTED.search(name) else args.gradient


def print_table(args, rows, is_markdown):
    groups = collections.OrderedDict()
    for name, error, is_equal, is_real in rows:
        general = re.sub(r"\blayers\.\d+\.", "layers.*.", name.replace("/", " ", 1))
        groups.setdefault(general, []).append((error, is_equal, bound_of(args, name, is_real)))
    form = "| `{}` | {} | {} | {:.2g} | {:g} |" if is_markdown else "{:58} {:5} {:9}  {:9.2g} {:9g}"
    print("| output | tensors | same bits | largest relative error | bound |\n|---|---|---|---|---|" if is_markdown else
          f"{'output':58} {'count':>5} {'same bits':>9}  {'error':>9} {'bound':>9}")
    for name, entries in sorted(groups.items(), key=lambda item: (item[0] != "loss", item[0])):
        print(form.format(name, len(entries), sum(equal for _, equal, _ in entries), max(error for error, _, _ in entries),
                          entries[0][2]))


def compare_graph(args, graph, folder):
    report = run_replay(args, graph, folder)
    world = len(report["ranks"])
    seconds = run_torch(graph.resolve(), folder, world)
    rows = compare(folder, world)
    outside = [row for row in rows if not row[1] <= bound_of(args, row[0], row[3])]
    ops = sum(op["seconds"] for op in report["ops"])
    print(f"{'### ' if args.table else ''}{graph.name.removesuffix('.gz').removesuffix('.epw')}: {world} ranks, {len(rows)} outputs, "
          f"{sum(row[2] for row in rows)} with the same bits, {len(outside)} outside of the bounds; seconds of computing, all "
          f"ranks: replay {ops:.1f}, PyTorch {sum(s['processor'] for s in seconds):.1f}\n")
    print_table(args, rows, args.table)
    print(flush=True)
    for name, error, _, is_real in outside:
        print(f"{graph.name}: {name}: relative error {error:.3g}, the bound is {bound_of(args, name, is_real):g}", file=sys.stderr)
    return not outside


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=pathlib.Path, nargs="+", metavar="GRAPH", help="graph files")
    parser.add_argument("--rank-of", type=pathlib.Path, help=argparse.SUPPRESS)  # this process is one rank
    parser.add_argument("--table", action="store_true", help="print Markdown")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the inputs (default 0)")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the files in this folder")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay", metavar="BIN",
                        help="the program (default: that of build/release)")
    parser.add_argument("--loss", type=float, default=1e-5, help="bound of the loss's relative error (default 1e-5)")
    parser.add_argument("--gradient", type=float, default=0.02, help="bound of a gradient's (default 0.02)")
    parser.add_argument("--routed", type=float, default=0.1, help="bound of gradients that routing reaches (default 0.1)")
    parser.add_argument("--buffer", type=float, default=0.01, help="bound of a buffer's, such as expert counts (default 0.01)")
    args = parser.parse_args()
    if args.rank_of:
        return run_rank(args.graphs[0], args.rank_of)
    is_fine = True
    for graph in args.graphs:
        with tempfile.TemporaryDirectory() as temporary:
            folder = args.keep / graph.name if args.keep else pathlib.Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "rendezvous").unlink(missing_ok=True)
            is_fine = compare_graph(args, graph, folder) and is_fine
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
