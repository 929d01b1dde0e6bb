#!/usr/bin/env python3
"""PyTorch's partitioner and `epweave partition` on the same joint graph, side by side.

    compare_partition.py [G.epw] [--model llama3 --size debug --dp-shard 4 ..] [--budget B ..]
                         [--policy none|default|eager|full] [--epweave PROGRAM] [--keep G.epw] [--json]

G is a joint graph with plain cross-entropy (one seed), normalised. Without one, a torchtitan model is traced here
(trace_torchtitan.py) and normalised; --keep leaves that graph in a file.

The seed becomes a placeholder `tangents_1`, backward calls are tagged for the partitioner, and torch's
min_cut_rematerialization_partition runs at each activation memory budget, by default 1. Its saved values, less those
that its backward does not read ("torch unread": it drops them, too), are compared by name with those of
`epweave partition --policy min-cut --budget B`. torch cannot size the meshes of a step below budget 1, and fails; here
they count as storage without bytes. Numbers that only the run knows, as the rows that an expert receives, are 4,096 to
torch, and each rank's share to epweave: --unknown-sizes N makes torch take N.
With a policy other than none, epweave's memory-policy tags the graph for both first.

Rows of the table, all by epweave's meter (each storage once, no parameters; predicted seconds of what is computed again;
peak of the halves without inputs): what torch saves, what `min-cut` does, `exact` without a budget, and `exact` with as
many bytes as torch's. Below it, the fewest bytes of any choice that computes no product and no attention again.

Needs torch 2.15, and torchtitan 0.3.0 to trace; no GPU. Exit codes: 0 the same names, 1 others, 2 usage, 3 the graph
cannot be loaded or traced.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import epweave_fx  # noqa: E402,F401  it knows where the package is
from epweave.errors import GraphFileError, UsageError  # noqa: E402
from epweave.programs import find_program  # noqa: E402


def run(*command, stderr=None):
    start = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stderr=stderr)
    return time.perf_counter() - start


TRACED_NUMBERS = ("dp-shard", "tp", "ep", "tokens", "sequence", "layers")
NORMALIZING = "dce,canonicalize,dedup-unshard"


def describe_model(options):
    given = [f"{name} {value}" for name in TRACED_NUMBERS if (value := getattr(options, name.replace("-", "_"))) is not None]
    return ", ".join([f"{options.model} {options.size}", *given])


def trace(options, folder):
    """A step of a torchtitan model, with plain cross-entropy and sizes as numbers, normalised."""
    words = ["--model", options.model, "--static", "--loss", "plain"]
    if options.size != "debug":
        words += ["--config", f"graph_trainer_{options.model}_{options.size.lower()}"]
    for name in TRACED_NUMBERS:
        if (value := getattr(options, name.replace("-", "_"))) is not None:
            words += [f"--{name}", value]
    traced = pathlib.Path(folder) / "traced.epw"
    graph = options.keep or pathlib.Path(folder) / "step.epw"
    try:
        run(sys.executable, pathlib.Path(__file__).resolve().parent / "trace_torchtitan.py", *words, "-o", traced)
    except subprocess.CalledProcessError as error:  # it has said why
        sys.exit(error.returncode)
    run(options.epweave, "rewrite", traced, "-q", "-p", NORMALIZING, "-o", graph)
    return graph


def tag_graph(epweave, graph, policy, folder):
    if policy == "none":
        return graph
    tagged = pathlib.Path(folder) / "tagged.epw"
    run(epweave, "rewrite", graph, "-q", "-p", f"memory-policy{{policy={policy}}}", "-o", tagged)
    return tagged


def find_seeds(graph):
    """Values of ones that backward begins with: read by backward calls alone."""
    return [node for node in graph.nodes
            if node.op == "call_function" and "ones_like" in str(node.target) and node.users
            and not node.meta.get("autograd_backward")
            and all(user.meta.get("autograd_backward") for user in node.users)]


def is_mesh(item):
    return getattr(item, "op", "") == "placeholder" and "Mesh" in type(item.meta.get("val")).__name__


def list_gradients(path):
    """Of each output of the step, whether it is a gradient."""
    return [role.get("role") == "grad" for role in epweave_fx.read_file(str(path))["outputs"]]


def part_outputs(items, gradients):
    """What the step returns: forward's, then backward's."""
    return ([item for item, is_gradient in zip(items, gradients, strict=True) if not is_gradient],
            [item for item, is_gradient in zip(items, gradients, strict=True) if is_gradient])


def prepare(module, gradients):
    """Makes the step a joint graph as AOTAutograd has it; returns how many outputs are forward's."""
    graph = module.graph
    seeds = find_seeds(graph)
    if len(seeds) != 1:
        sys.exit(f"compare_partition: the graph has {len(seeds)} seeds; trace it with plain cross-entropy")
    for node in graph.nodes:
        if node.meta.get("autograd_backward"):
            node.meta["partitioner_tag"] = "is_backward"
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(last):
        tangent = graph.placeholder("tangents_1")
    tangent.meta["val"] = seeds[0].meta["val"]
    seeds[0].replace_all_uses_with(tangent)
    graph.erase_node(seeds[0])
    output = next(iter(reversed(graph.nodes)))
    # Meshes that stand beside gradients are no values that a partition could save.
    of_forward, of_backward = part_outputs(output.args[0], gradients)
    output.args = (tuple(None if is_mesh(item) else item for item in of_forward + of_backward),)
    output.meta.setdefault("desc", [None] * len(output.args[0]))
    module.recompile()
    return len(of_forward)


def find_read(saved, outputs):
    """Those of the saved values that backward reads. PyTorch drops the others when it writes the backward graph."""
    saved, seen, read = set(saved), set(), set()
    stack = [node for node in outputs if hasattr(node, "all_input_nodes")]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in saved:
            read.add(node)
        else:
            stack.extend(node.all_input_nodes)
    return read


@contextlib.contextmanager
def torch_settings(partitioners, budget, unknown, choose):
    """torch at a memory budget, with `choose` in place of its choice of saved values, and with meshes that it can size."""
    import torch._functorch.config
    import torch._inductor.fx_utils as fx_utils

    names = ((partitioners, "choose_saved_values_set"), (partitioners, "_size_of"), (fx_utils, "get_node_storage"),
             (partitioners, "optimization_hint"))
    kept = [getattr(owner, name) for owner, name in names]
    _, size_of, find_storage, hint = kept
    made = (choose, lambda node: 0 if is_mesh(node) else size_of(node),
            lambda node: node.name if is_mesh(node) else find_storage(node),
            lambda number, fallback=None: hint(number, fallback=unknown or fallback))
    try:
        for (owner, name), value in zip(names, made):
            setattr(owner, name, value)
        with torch._functorch.config.patch(activation_memory_budget=budget):
            yield
    finally:
        for (owner, name), value in zip(names, kept):
            setattr(owner, name, value)


def partition_with_torch(path, state, budget, unknown=None):
    import epweave_fx
    import torch
    import torch._functorch.partitioners as partitioners

    module = epweave_fx.load(str(path))
    forward_outputs = prepare(module, list_gradients(path))
    saved, read = [], set()
    choose = partitioners.choose_saved_values_set

    def record(joint_graph, *args, **kwargs):
        output = next(iter(reversed(joint_graph.nodes)))
        gradients = output.args[0][forward_outputs:]
        saved.extend(choose(joint_graph, *args, **kwargs))
        read.update(find_read(saved, gradients))
        return list(saved)

    start = time.perf_counter()
    try:
        with torch_settings(partitioners, budget, unknown, record):
            partitioners.min_cut_rematerialization_partition(
                module, None, num_fwd_outputs=forward_outputs, static_lifetime_input_indices=state)
    except Exception as error:  # what it chose is known by then
        if not saved:
            raise
        print(f"note: torch chose what to save and then failed: {type(error).__name__}: {error}", file=sys.stderr)
    return saved, read, time.perf_counter() - start, torch.__version__


def merge_equal_calls(module, gradients):
    """torch's merging of equal calls, which it does before it chooses: what backward needs stays apart from what it does not."""
    from torch._functorch.compile_utils import fx_graph_cse

    output = next(iter(reversed(module.graph.nodes)))
    _, of_backward = part_outputs(output.args[0], gradients)
    needed, stack = set(), [node for node in of_backward if hasattr(node, "all_input_nodes")]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    module.graph = fx_graph_cse(module.graph, extra_node_key=lambda node: node in needed)


def tag_as_chosen(path, names, folder):
    """The step with equal calls merged, in which the values of these names are to be saved and all other forward ones not."""
    import epweave_fx
    from torch.utils.checkpoint import CheckpointPolicy

    module = epweave_fx.load(str(path))
    merge_equal_calls(module, list_gradients(path))
    for node in module.graph.nodes:
        if node.name in names:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            node.meta.pop("autograd_backward", None)  # as of views of forward values that only backward reads
        elif node.op == "call_function" and not node.meta.get("autograd_backward"):
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    tagged = pathlib.Path(folder) / "chosen.epw"
    epweave_fx.export(module, str(tagged))
    return tagged


def list_state(path):
    """Positions of the inputs that are parameters or buffers."""
    import epweave_fx

    inputs = epweave_fx.read_file(str(path))["inputs"]
    return [i for i, role in enumerate(inputs) if role.get("role") in ("parameter", "buffer")]


def partition_with_epweave(epweave, path, folder, policy, budget=None, stderr=None):
    report = pathlib.Path(folder) / f"{policy}.json"
    words = ["--budget", budget] if budget is not None else []
    seconds = run(epweave, "partition", path, "-q", "--policy", policy, *words, "--fwd", pathlib.Path(folder) / "F.epw",
                  "--bwd", pathlib.Path(folder) / "B.epw", "--report", report, stderr=stderr)
    return json.loads(report.read_text()), seconds


def names_of(report):
    """Values that backward is given beside the inputs of the step: views of inputs, too, though their bytes are the input's."""
    return {row["name"] for row in report["saved"] if row["why"] != "an input of the step" and row["kind"] != "symbol"}


METER = ("saved_bytes", "gathered_bytes", "recompute_seconds", "bound_seconds", "peak_bytes")


def measure(report):
    return {key: report[key] for key in METER}


def price_torch(epweave, path, chosen, tensors, folder):
    """torch's choice by epweave's meter; none where tags do not give just that."""
    tagged = tag_as_chosen(path, {node.name for node in chosen if node.op != "placeholder"}, folder)
    try:
        report, _ = partition_with_epweave(epweave, tagged, folder, "tags", stderr=subprocess.DEVNULL)
    except subprocess.CalledProcessError:
        return None
    return measure(report) if names_of(report) == tensors else None


def choose_with_as_many_bytes(epweave, path, folder, saved_bytes):
    """The exact choice for a number of bytes; the smallest there is, if that has more."""
    try:
        report, _ = partition_with_epweave(epweave, path, folder, "exact", f"{saved_bytes / 2**20!r}MiB",
                                           stderr=subprocess.DEVNULL)
    except subprocess.CalledProcessError:
        report, _ = partition_with_epweave(epweave, path, folder, "exact", "0")
    return measure(report)


def compare_at(options, path, budget, folder):
    theirs, read, torch_seconds, version = partition_with_torch(path, list_state(path), budget, options.unknown_sizes)
    ours, seconds = partition_with_epweave(options.epweave, path, folder, "min-cut", None if budget == 1 else budget)
    exact, _ = partition_with_epweave(options.epweave, path, folder, "exact")
    chosen = {node.name for node in theirs if node.op != "placeholder" and hasattr(node.meta.get("val"), "shape")}
    tensors = chosen & {node.name for node in read}
    own = names_of(ours)
    return {
        "budget": budget, "torch": version,
        "torch_saved": len(tensors), "torch_unread": sorted(chosen - tensors), "epweave_saved": len(own),
        "only_torch": sorted(tensors - own), "only_epweave": sorted(own - tensors),
        "torch_seconds": torch_seconds, "epweave_seconds": seconds,
        "torch_cut": price_torch(options.epweave, path, theirs, tensors, folder),
        "min_cut": measure(ours), "exact": measure(exact), "exact_least_bytes": exact["least_bytes"],
        "exact_same_bytes": choose_with_as_many_bytes(options.epweave, path, folder, ours["saved_bytes"]),
    }


def compare(options):
    with tempfile.TemporaryDirectory() as folder:
        graph = options.graph or trace(options, folder)
        path = tag_graph(options.epweave, graph, options.policy, folder)
        budgets = [compare_at(options, path, budget, folder) for budget in options.budget or [1]]
        return {"graph": str(options.graph or describe_model(options)), "policy": options.policy, "budgets": budgets}


def print_report(report):
    for at in report["budgets"]:
        print(f"{report['graph']}, tags of policy {report['policy']}, budget {at['budget']:g}: torch {at['torch']} saves "
              f"{at['torch_saved']} values, epweave {at['epweave_saved']}")
        for key in ("only_torch", "only_epweave", "torch_unread"):
            if at[key]:
                print(f"  {key.replace('_', ' ')}: {' '.join(at[key])}")
        print(f"  {'':20}{'MiB':>10}{'gathered':>10}{'ms again':>10}{'bound':>10}{'peak MiB':>10}")
        for key in ("torch_cut", "min_cut", "exact", "exact_same_bytes"):
            if row := at[key]:
                print(f"  {key.replace('_', ' '):20}{row['saved_bytes'] / 2**20:10.2f}{row['gathered_bytes'] / 2**20:10.2f}"
                      f"{row['recompute_seconds'] * 1e3:10.4f}{row['bound_seconds'] * 1e3:10.4f}"
                      f"{row['peak_bytes'] / 2**20:10.2f}")
        print(f"  at least {at['exact_least_bytes'] / 2**20:.3f} MiB where no product and no attention is computed again")
        print(f"  {at['torch_seconds']:.3f} s in torch, {at['epweave_seconds']:.3f} s in epweave, file to file")


def budget_of(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


budget_of.__name__ = "share from 0 to 1"  # argparse names it in its message


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path, nargs="?", metavar="G", help="by default one is traced")
    parser.add_argument("--epweave", metavar="PROGRAM", help="by default the one that the package epweave runs")
    parser.add_argument("--policy", default="none", choices=("none", "default", "eager", "full"),
                        help="torchtitan's memory policy ahead of it (default none)")
    parser.add_argument("--budget", type=budget_of, nargs="+", metavar="B", help="shares from 0 to 1 (default 1)")
    parser.add_argument("--unknown-sizes", type=int, metavar="N", help="what torch takes for sizes that only the run knows")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    traced = parser.add_argument_group("without G")
    traced.add_argument("--model", choices=("llama3", "deepseek_v3", "qwen3"), help="by default llama3")
    traced.add_argument("--size", metavar="NAME", help="debug (the default), or as torchtitan names it: 8b, 16b")
    for name in TRACED_NUMBERS:
        traced.add_argument(f"--{name}", type=int, metavar="N", help="as trace_torchtitan.py has it")
    traced.add_argument("--keep", type=pathlib.Path, metavar="FILE", help="keep the traced, normalised graph")
    return parser


def check_options(parser, options):
    given = [name for name in ("model", "size", *TRACED_NUMBERS, "keep") if getattr(options, name.replace("-", "_")) is not None]
    if options.graph and given:
        parser.error(f"--{given[0]} is for a graph that is traced here: leave out {options.graph}")
    options.model, options.size = options.model or "llama3", options.size or "debug"
    try:
        options.epweave = options.epweave or find_program("epweave")
    except UsageError as error:
        parser.error(str(error))


def main():
    parser = make_parser()
    options = parser.parse_args()
    check_options(parser, options)
    try:
        report = compare(options)
    except GraphFileError as error:
        print(f"compare_partition: {error}", file=sys.stderr)
        return 3
    except subprocess.CalledProcessError as error:  # epweave has said why
        return error.returncode
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)
    return 1 if any(at["only_torch"] or at["only_epweave"] for at in report["budgets"]) else 0


if __name__ == "__main__":
    sys.exit(main())
