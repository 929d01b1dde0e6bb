"""Debug models of torchtitan trained on CPU ranks (gloo), or on a GPU for each rank (NCCL), under several pass pipelines, compared.

    python -m epweave.torchtitan --model deepseek_v3 --cpu --world 2 --steps 5 --compare none,epweave,reference

Each pipeline is a run of its own with the same weights and batches: the real GraphTrainer.forward_backward_step
traces, looks the pipeline up, applies it and runs the graph; AdamW steps. `none` is the graph as traced, `reference`
torchtitan's own list without Inductor, `epweave` EPWEAVE_PIPELINE, `halves` the forward and then the backward half of
that graph. Printed are losses, norms of all gradients and a hash of all parameters of all ranks after the last step.
Needs torch 2.15 and torchtitan 0.3.0.

    python -m epweave.torchtitan --model deepseek_v3 --cpu --world 2 --precompile DIR
    python -m epweave.torchtitan --model deepseek_v3 --cpu --world 2 --compare epweave,artifact --artifact DIR

The first traces once, in one process, for all ranks, and writes an artifact; in the second, the ranks of the pipeline
`artifact` load it and trace nothing. With `--ranks 0,1,2,4` these ranks are traced, each in a process of its own, and joined:
for jobs that torchtitan cannot trace for all ranks at once.

With `--device cuda` each process sees one GPU, that of its rank, and calls it cuda:0, as the traces do.

Exit codes: 0 fine, 1 a rank failed or a pipeline is further than --tolerance from the first, 2 usage.
"""
from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from .api import check_pipeline
from .errors import EpweaveError, UsageError, full_text
from .files import check_place, write_bytes
from .halves import check_policy
from .layers import resize_layers
from .parallel_model import build_loss, parallelize
from .settings import check_environment

TRACER = "torchtitan.experiments.graph_trainer"
CONFIGS = {"deepseek_v3": "graph_trainer_deepseek_v3_debugmodel", "qwen3": "graph_trainer_qwen3_debugmodel_moe",
           "llama3": "graph_trainer_llama3_debugmodel"}
PIPELINES = ("none", "epweave", "reference", "artifact", "halves")


# --------------------------------------------------------------------------------------- a rank
def use_cpu() -> None:
    """Makes torchtitan take the CPU for its device; before anything else imports it."""
    import torch
    from torch.nn.attention import flex_attention
    from torchtitan.tools import utils
    utils.device_type, utils.device_module = "cpu", torch.cpu
    utils.get_local_device = lambda: torch.device("cpu")
    flex_attention._validate_device = lambda query, key, value: None  # its dense math has a backward on the CPU
    from torchtitan.models.common import attention
    attention._compiled_create_block_mask = attention.create_block_mask


def own_device(options):
    """The device of this process."""
    import torch
    return torch.device("cpu") if options.device == "cpu" else torch.device("cuda", 0)


def make_config(options):
    registry = importlib.import_module(f"{TRACER}.{options.model}.config_registry")
    config = getattr(registry, CONFIGS[options.model])()
    if options.layers:
        config.model_spec.model.layers = resize_layers(config.model_spec.model.layers, options.layers)
    config.training.local_batch_size = options.tokens // options.sequence
    config.training.seq_len = options.sequence
    parallelism = config.parallelism
    parallelism.data_parallel_replicate_degree = parallelism.pipeline_parallel_degree = 1
    parallelism.context_parallel_degree = 1
    parallelism.data_parallel_shard_degree = options.world // options.tp
    parallelism.tensor_parallel_degree = options.tp
    parallelism.expert_parallel_degree = options.ep
    config.compile.ep_overlap.enabled = False
    config.compile.pass_pipeline = "epweave" if options.pipeline in ("artifact", "halves") else options.pipeline
    config.compile.enable_passes = options.pipeline != "none"
    return config


def build_model(config, dims, options):
    """The parallelised model on the CPU and its loss, as torchtitan's trainer builds them."""
    import torch

    model = parallelize(config, dims)
    device = own_device(options)
    model.to_empty(device=device)
    if not options.precompile:  # else nothing reads the values
        torch.manual_seed(options.seed)
        with torch.no_grad():
            model.init_states(buffer_device=device)
    model.train()
    return model, build_loss(config, model)


def build_trainer(config, dims, model, loss, device):
    """A trainer without data loader, checkpoint and metrics, as torchtitan's unit tests build it."""
    from torchtitan.distributed.utils import get_spmd_context
    trainer_module = importlib.import_module(f"{TRACER}.trainer")
    registry = importlib.import_module(f"{TRACER}.registry")
    trainer = object.__new__(trainer_module.GraphTrainer)
    trainer.config, trainer.parallel_dims, trainer.model_parts = config, dims, [model]
    trainer.loss_fn, trainer.model_config = loss, config.model_spec.model
    trainer.train_context = get_spmd_context(parallel_dims=dims)
    trainer.device, trainer.tokenizer, trainer.ntokens_seen = device, None, 0
    trainer._traced_step = None
    registry.POST_INIT_HOOKS.get(config.compile.pass_pipeline, lambda _: None)(trainer)
    return trainer


def use_reference_passes() -> None:
    """Registers torchtitan's own list, less what needs a GPU, as the pipeline `reference`."""
    passes = importlib.import_module(f"{TRACER}.passes")
    registry = importlib.import_module(f"{TRACER}.registry")

    @registry.register_pass_pipeline("reference")
    def reference(traced, config, *, parallel_dims=None):
        return passes.compile_time_passes(traced, config, parallel_dims=parallel_dims, include_inductor=False)


def local_tensor(tensor):
    return getattr(tensor, "_local_tensor", tensor).detach()


def gradient_norm(model) -> float:
    """The norm of all gradients, each rank's share counted once, in float64."""
    import torch
    import torch.distributed as dist
    total = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        local = local_tensor(parameter.grad).to(torch.float64)
        copies = 1
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            for size, placement in zip(mesh.shape, parameter.placements):
                copies *= size if placement.is_replicate() else 1
            copies *= dist.get_world_size() // mesh.size()
        else:
            copies = dist.get_world_size()
        total += local.square().sum() / copies
    dist.all_reduce(total)
    return total.sqrt().item()


def parameter_hash(model) -> str:
    """A hash of this rank's parameters: names, dtypes and bytes."""
    import torch
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        local = local_tensor(parameter).contiguous()
        digest.update(f"{name} {local.dtype} {list(local.shape)} ".encode())
        digest.update(local.reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def make_batch(options, config, rank: int, step: int) -> tuple[dict, object]:
    """Tokens and labels of a step: the same for ranks that share them (tensor parallelism)."""
    import torch
    generator = torch.Generator().manual_seed(1_000_003 * (options.seed + 1) + 1_009 * step + rank // options.tp)
    shape = (options.tokens // options.sequence, options.sequence + 1)
    text = torch.randint(config.model_spec.model.vocab_size, shape, generator=generator)
    positions = torch.arange(options.sequence, dtype=torch.int32).expand(shape[0], -1).contiguous()
    device = own_device(options)
    inputs = {"input": text[:, :-1].contiguous().to(device), "positions": positions.to(device)}
    return inputs, text[:, 1:].contiguous().to(device)


def set_up(options, backend: str, **where):
    """The trainer of this process's rank, with a process group of `backend`."""
    import torch
    import torch.distributed as dist
    if options.device == "cpu":
        use_cpu()
    else:
        torch.cuda.set_device(own_device(options))
    import epweave.torchtitan  # noqa: F401  registers the pipeline
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.utils import set_spmd_backend
    importlib.import_module(f"{TRACER}.passes")
    importlib.import_module(f"{TRACER}.common_utils").maybe_register_blockmask_pytree_node()
    use_reference_passes()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    config = make_config(options)
    set_spmd_backend(config.parallelism.spmd_backend)
    dist.init_process_group(backend, world_size=options.world, **where)
    dist.config.compile_on_one_rank = bool(options.precompile) and options.trace_of is None
    dims = ParallelDims(dp_shard=options.world // options.tp, dp_replicate=1, cp=1, tp=options.tp, pp=1, ep=options.ep,
                        world_size=options.world, spmd_backend=config.parallelism.spmd_backend)
    dims.build_mesh()
    model, loss_function = build_model(config, dims, options)
    return build_trainer(config, dims, model, loss_function, own_device(options))


def run_step(trainer, options, rank: int, step: int):
    """Forward and backward of a step: the loss; gradients are those of the parameters."""
    import torch
    inputs, labels = make_batch(options, trainer.config, rank, step)
    valid = torch.tensor(options.tokens * options.world // options.tp, device=own_device(options))
    return trainer.forward_backward_step(input_dict=inputs, labels=labels, global_valid_tokens=valid)


def count_traces() -> list:
    """A list that gets an entry whenever torchtitan begins to trace a step."""
    trainer_module = importlib.import_module(f"{TRACER}.trainer")
    trace, begun = trainer_module.minimal_fx_tracer, []

    def counted(*args, **kwargs):
        begun.append(True)
        return trace(*args, **kwargs)

    trainer_module.minimal_fx_tracer = counted
    return begun


def precompile(options) -> None:
    """Traces the step once, for all ranks, in this process alone; ends it when the artifact is written."""
    os.environ["EPWEAVE_PRECOMPILE"] = options.precompile
    if options.repair:
        os.environ["EPWEAVE_REPAIR"] = "1"
    try:
        run_step(set_up(options, "fake", rank=0), options, 0, 0)
    except EpweaveError as error:
        raise SystemExit(f"epweave: error: {full_text(error)}") from None


def precompile_of_ranks(options, arguments: list[str]) -> None:
    """Traces some ranks, each in a process of its own, and makes one artifact of the traces."""
    from epweave.torchtitan import join_traces
    with tempfile.TemporaryDirectory(prefix="epweave-traces-") as folder:
        for rank in options.ranks:
            print(f"tracing rank {rank} ...", file=sys.stderr)
            done = subprocess.run([*rank_command(arguments), "--pipeline", "epweave", "--trace-of", str(rank)], check=False,
                                  capture_output=True, env={**rank_environment(), "EPWEAVE_TRACE": folder})
            if done.returncode:
                raise SystemExit(f"rank {rank} failed (exit code {done.returncode}):\n{done.stderr.decode(errors='replace')[-4000:]}")
        try:
            print(f"epweave: wrote {join_traces(folder, options.precompile, repair=options.repair)}")
        except EpweaveError as error:
            raise SystemExit(f"epweave: error: {full_text(error)}") from None


def trace_rank(options) -> None:
    """Traces the step of one rank in this process alone; ends it when EPWEAVE_TRACE has the trace."""
    run_step(set_up(options, "fake", rank=options.trace_of), options, options.trace_of, 0)


def rank_command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "epweave.train_on_cpu", *arguments]


def rank_environment() -> dict[str, str]:
    """What all processes of ranks have: this package, one thread, and what PyTorch needs for the same bits each time."""
    here = str(pathlib.Path(__file__).resolve().parents[1])
    return {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ, "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))}


def train_rank(options, folder: pathlib.Path) -> dict:
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    trainer = set_up(options, "gloo" if options.device == "cpu" else "nccl", init_method=f"file://{folder}/rendezvous", rank=rank)
    traces = count_traces()
    model = trainer.model_parts[0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, foreach=False)
    losses, norms, seconds = [], [], []
    for step in range(options.steps):
        began = time.perf_counter()
        loss = run_step(trainer, options, rank, step)
        total = loss.detach().to(torch.float64).clone()
        total = getattr(total, "_local_tensor", total)
        dist.all_reduce(total)
        losses.append(total.item() / options.tp)
        norms.append(gradient_norm(model))
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    nodes = len(trainer._traced_step.gm.graph.nodes)
    report = {"losses": losses, "norms": norms, "hash": parameter_hash(model), "nodes": nodes, "seconds": seconds,
              "traces": len(traces)}
    dist.barrier()
    dist.destroy_process_group()
    return report


# ------------------------------------------------------------------------------------- all ranks
def environment_of(pipeline: str, rank: int, options) -> dict[str, str]:
    """What is a rank's alone. Artifacts are the ranks' in turn, where several are given."""
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    if options.device == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(options.world)))).split(",")
        own |= {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": visible[rank % len(visible)]}
    if pipeline == "artifact":
        own["EPWEAVE_ARTIFACT"] = options.artifact[rank % len(options.artifact)]
    return own


def settings_of(pipeline: str, options) -> list[dict[str, str]]:
    """The runs of a pipeline, by the environment of each: what epweave is to run."""
    rewrites = [{"EPWEAVE_PIPELINE": text} for text in options.rewrite] or [{}]
    if pipeline == "epweave":
        return rewrites
    if pipeline == "halves":
        return [{**rewrite, "EPWEAVE_PARTITION": text} for rewrite in rewrites for text in options.partition or ["exact"]]
    return rewrites[:1] if pipeline == "artifact" else [{}]


class FailedRow(Exception):
    """A rank of a row ended with an error; the message has the end of what it said."""


def run_pipeline(pipeline: str, settings: dict[str, str], arguments: list[str], options) -> dict:
    """One run: a process per rank. The ranks' reports as one."""
    environment = {**rank_environment(), "WORLD_SIZE": str(options.world), **settings}
    with tempfile.TemporaryDirectory(prefix="epweave-train-") as temporary:
        folder = pathlib.Path(temporary)
        command = [*rank_command(arguments), "--pipeline", pipeline, "--rank-of", str(folder)]
        logs = [open(folder / f"log{rank}", "wb") for rank in range(options.world)]
        workers = [subprocess.Popen(command, env={**environment, **environment_of(pipeline, rank, options)},
                                    stdout=logs[rank], stderr=subprocess.STDOUT) for rank in range(options.world)]
        failed_at, codes = None, []
        try:
            while None in (codes := [worker.poll() for worker in workers]):
                if any(codes):
                    failed_at = failed_at or time.monotonic()
                    if time.monotonic() > failed_at + 20:
                        break  # the others wait for one that has failed
                time.sleep(0.2)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            for log in logs:
                log.close()
        if any(codes):
            rank = next(r for r, code in enumerate(codes) if code)
            text = (folder / f"log{rank}").read_text(errors="replace")
            raise FailedRow(f"rank {rank} failed (exit code {codes[rank]}):\n{text[-4000:]}")
        reports = [json.loads((folder / f"report{rank}.json").read_text()) for rank in range(options.world)]
    whole = hashlib.sha256("".join(r["hash"] for r in reports).encode()).hexdigest()
    return {**reports[0], "hash": whole[:16], "seconds": max(sum(r["seconds"]) for r in reports)}


def largest_distance(row: dict, base: dict, *keys: str) -> float:
    """How far two rows are apart, relatively, in all steps; not a number where one of theirs is none."""
    def distance(a: float, b: float) -> float:
        return 0.0 if a == b else abs(a - b) / abs(b) if b else math.inf

    return max((distance(*pair) for key in keys for pair in zip(row[key], base[key])), key=lambda x: (math.isnan(x), x))


def describe_difference(row: dict, base: dict) -> str:
    if row["hash"] == base["hash"]:
        return "all parameters bitwise equal"
    first = "equal" if row["losses"][0] == base["losses"][0] else "not equal"
    first_norms = largest_distance({"norms": row["norms"][:1]}, base, "norms")
    return (f"the first loss {first}, the first norms {first_norms:.2g} apart; over all"
            f" steps losses within {largest_distance(row, base, 'losses'):.2g}, norms within"
            f" {largest_distance(row, base, 'norms'):.2g} of each other")


def rows_apart(rows: dict[str, dict], tolerance: float) -> dict[str, float]:
    """The rows whose losses or norms are further from the first row's than the tolerance."""
    base = next(iter(rows.values()), None)
    apart = {name: largest_distance(row, base, "losses", "norms") for name, row in rows.items() if row is not base}
    return {name: distance for name, distance in apart.items() if not distance <= tolerance}


def print_steps(rows: dict[str, dict]) -> None:
    """As torchtitan's log has them."""
    for pipeline, row in rows.items():
        print(f"{pipeline}:")
        for step, (loss, norm) in enumerate(zip(row["losses"], row["norms"]), 1):
            print(f"step {step}: loss={loss:.5f} grad_norm={norm:.4f}")


def print_table(rows: dict[str, dict], *, by_step: bool = False) -> None:
    for pipeline, row in rows.items():
        print(f"{pipeline:>10}  {row['nodes']:6} nodes  hash {row['hash']}  {row['seconds']:6.1f} s")
        print(f"{'loss':>10}  " + "  ".join(f"{x:.9g}" for x in row["losses"]))
        print(f"{'norm':>10}  " + "  ".join(f"{x:.9g}" for x in row["norms"]))
    if by_step:
        print_steps(rows)
    first = next(iter(rows), None)
    for pipeline, row in list(rows.items())[1:]:
        base = rows[first]
        print(f"{pipeline} and {first}: {describe_difference(row, base)}")
    rewritten = [name for name in rows if name.startswith("epweave")]
    for earlier, later in zip(rewritten, rewritten[1:]):
        print(f"{later} and {earlier}: {describe_difference(rows[later], rows[earlier])}")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m epweave.torchtitan", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add, count = parser.add_argument, whole_number_from(1)
    add("--model", choices=sorted(CONFIGS), default="deepseek_v3", help="torchtitan's debug model (default deepseek_v3)")
    # Without a default of its own, which would be taken for that of --device.
    add("--cpu", action="store_const", dest="device", const="cpu", default=argparse.SUPPRESS, help="the same as --device cpu")
    add("--device", choices=("cpu", "cuda"), default="cpu",
        help="cpu with gloo (the default), or cuda: a GPU for each rank, with NCCL")
    add("--world", type=count, default=2, metavar="N", help="ranks (default 2)")
    add("--tp", type=count, default=1, metavar="N", help="tensor-parallel ranks (default 1)")
    add("--ep", type=count, metavar="N", help="expert-parallel ranks (default: all ranks for a MoE model)")
    add("--layers", type=count, metavar="N", help="number of layers (default: the model's)")
    add("--tokens", type=count, default=256, metavar="N", help="tokens per rank (default 256)")
    add("--sequence", type=count, default=64, metavar="N", help="tokens per sequence (default 64)")
    add("--steps", type=count, default=3, metavar="N", help="training steps (default 3)")
    add("--seed", type=whole_number_from(0), default=0, metavar="S", help="of weights and batches (default 0)")
    add("--lr", type=amount, default=1e-3, metavar="X", help="AdamW's learning rate (default 0.001)")
    add("--compare", default="none,epweave", metavar="LIST",
        help=f"pipelines, with commas between (default none,epweave): {', '.join(PIPELINES)}")
    add("--rewrite", action="append", default=[], metavar="PIPELINE",
        help="what epweave is to run, in place of EPWEAVE_PIPELINE; each one given is a row of its own")
    add("--partition", action="append", default=[], metavar="POLICY[:BUDGET]",
        help="how the pipeline halves splits the rewritten step (epweave partition; default exact); may be repeated")
    add("--precompile", metavar="DIR", help="trace once, for all ranks, write the artifact to this folder, and exit")
    add("--ranks", type=rank_list, metavar="R,..",
        help="with --precompile: trace these ranks and join them, in place of one trace for all ranks")
    add("--repair", action="store_true",
        help="with --precompile: replace numbers of one rank that are proved to be such (epweave generalize --repair)")
    add("--artifact", action="append", default=[], metavar="DIR",
        help="what the pipeline artifact loads; given twice, ranks take them in turn")
    add("--tolerance", type=amount, metavar="X",
        help="exit with 1 where losses or norms of a pipeline are further from those of the first, relatively")
    add("--by-step", action="store_true", help="also print loss and norm of each step in a line, as torchtitan's log has them")
    add("--json", metavar="FILE", help="also write the figures to this file")
    add("--pipeline", help=argparse.SUPPRESS)
    add("--rank-of", type=pathlib.Path, help=argparse.SUPPRESS)
    add("--trace-of", type=int, help=argparse.SUPPRESS)
    return parser


def whole_number_from(least: int):
    """What argparse reads a whole number by."""
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}")
        return int(text)
    return read


def amount(text: str) -> float:
    """A finite number from 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return number


def rank_list(text: str) -> list[int]:
    """Ranks with commas between: 0,1,4."""
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of ranks, such as 0,1,4")
    return [int(word) for word in words]


def find_misuse(options, pipelines: list[str]) -> str | None:
    """Why these options do not go together; None where they do."""
    unknown = [pipeline for pipeline in pipelines if pipeline not in PIPELINES]
    ranks = options.ranks or []
    places = len(pipelines) + len(options.rewrite[1:])  # rows of the table
    rules = (
        (unknown, f"--compare: there is no pipeline {''.join(unknown[:1])}: {', '.join(PIPELINES)}"),
        (len(set(pipelines)) < len(pipelines), "--compare names a pipeline twice"),
        (("artifact" in pipelines) != bool(options.artifact), "--compare artifact and --artifact DIR belong together"),
        (os.environ.get("EPWEAVE_PARTITION"), "EPWEAVE_PARTITION is not read here: give --compare halves --partition POLICY"),
        (os.environ.get("EPWEAVE_ARTIFACT"), "EPWEAVE_ARTIFACT is not read here: give --compare artifact --artifact DIR"),
        (os.environ.get("EPWEAVE_PRECOMPILE"), "EPWEAVE_PRECOMPILE is not read here: give --precompile DIR"),
        (os.environ.get("EPWEAVE_TRACE"), "EPWEAVE_TRACE is not read here: give --precompile DIR --ranks R,.."),
        (options.partition and "halves" not in pipelines, "--partition belongs to --compare halves"),
        (options.tolerance is not None and places < 2, "--tolerance compares: give two pipelines or more"),
        (options.repair and not options.precompile, "--repair belongs to --precompile DIR"),
        (ranks and not options.precompile, "--ranks belongs to --precompile DIR"),
        (ranks and len(set(ranks)) < 2, "--ranks: give two ranks or more"),
        (any(rank >= options.world for rank in ranks), f"--ranks: the job has ranks 0 to {options.world - 1}"),
        (options.precompile and len(options.rewrite) > 1, "--precompile makes one artifact: give --rewrite once"),
        (options.world % options.tp, f"--tp {options.tp} does not divide the {options.world} ranks of --world"),
        (options.world % options.ep, f"--ep {options.ep} does not divide the {options.world} ranks of --world"),
        (options.tokens % options.sequence,
         f"--tokens {options.tokens} is not a multiple of --sequence {options.sequence}"))
    return next((message for is_wrong, message in rules if is_wrong), None)


def run_rows(pipelines: list[str], arguments: list[str], options) -> tuple[dict[str, dict], dict[str, str]]:
    """The figures of each row of the table, and the messages of those that failed, which keep no other from running."""
    rows, failed = {}, {}
    for pipeline in pipelines:
        for number, settings in enumerate(settings_of(pipeline, options), 1):
            name = f"{pipeline}-{number}" if settings else pipeline
            said = f" ({'; '.join(settings.values())})" if settings else ""
            print(f"{name}{said}: {options.steps} steps on {options.world} ranks ...", file=sys.stderr, flush=True)
            try:
                rows[name] = run_pipeline(pipeline, settings, arguments, options)
                print(f"{name}{said}: done in {rows[name]['seconds']:.0f} s", file=sys.stderr)
            except FailedRow as error:
                failed[name] = str(error)
                print(f"{name}{said}: failed", file=sys.stderr)
    return rows, failed


def run_rank(options) -> int:
    """Trains or traces as the rank that this process is; its exit code."""
    try:
        if options.trace_of is not None:
            if options.rewrite:
                os.environ["EPWEAVE_PIPELINE"] = options.rewrite[0]
            trace_rank(options)
        else:
            report = train_rank(options, options.rank_of)
            (options.rank_of / f"report{os.environ['RANK']}.json").write_text(json.dumps(report))
    except EpweaveError as error:
        print(f"epweave: error: {full_text(error)}", file=sys.stderr)
        return error.exit_code
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command of these arguments, else of the process's; its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.ep is None:
        options.ep = 1 if options.model == "llama3" else options.world
    if options.rank_of or options.trace_of is not None:
        return run_rank(options)
    pipelines = options.compare.split(",")
    if misuse := find_misuse(options, pipelines):
        parser.error(misuse)
    if options.json == "-":
        parser.error("--json - shares standard output with the table: give it a file")
    try:
        if options.json:
            check_place(options.json)
    except EpweaveError as error:
        parser.error(f"--json: {error}")
    try:
        for text in options.rewrite:
            check_pipeline(text, "--rewrite")
        for text in options.partition:
            check_policy(text, "--partition")
        if options.precompile or set(pipelines) - {"none", "reference"}:
            check_environment()
    except UsageError as error:
        parser.error(full_text(error))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # which ends the ranks, too
    if options.ranks:
        precompile_of_ranks(options, arguments)
        return 0
    if options.precompile:
        options.pipeline = "epweave"
        if options.rewrite:
            os.environ["EPWEAVE_PIPELINE"] = options.rewrite[0]
        precompile(options)
        return 0
    return compare_rows(pipelines, arguments, options)


def compare_rows(pipelines: list[str], arguments: list[str], options) -> int:
    """Runs the rows and prints their table; the process's exit code."""
    rows, failed = run_rows(pipelines, arguments, options)
    print_table(rows, by_step=options.by_step)
    for name, error in failed.items():
        print(f"{name}: failed: {error}", file=sys.stderr)
    if options.json:
        report = {**rows, **{name: {"error": error} for name, error in failed.items()}}
        write_bytes((json.dumps(report, indent=1) + "\n").encode(), options.json)
    apart = rows_apart(rows, options.tolerance) if options.tolerance is not None else {}
    for name, distance in apart.items():
        print(f"{name}: {distance:.2g} from {next(iter(rows))}, more than --tolerance {options.tolerance:g}", file=sys.stderr)
    return 1 if failed or apart else 0


if __name__ == "__main__":
    sys.exit(main())
