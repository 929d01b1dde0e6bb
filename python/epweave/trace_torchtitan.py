"""Trace one training step of a torchtitan model into a graph file, without a GPU.

    python -m epweave.trace_torchtitan --model deepseek_v3 --dp-shard 4 --ep 2 -o dsv3.epw

The graph is what torchtitan's graph_trainer traces on rank 0, or on the rank that --rank names:
forward, loss and backward at the aten level. Parameters and inputs are fake tensors on "cuda:0" and the process groups
are fake, so that any mesh size can be traced on a machine without an accelerator.

--rank-agnostic traces with torch's compile-on-one-rank mode: meshes, looked-up groups and
coordinates stand in the graph, which is meant for every rank. `epweave verify --ranks` finds what
torchtitan still reads of rank 0's place in Python; see docs/rank_agnostic.md.

Needs torch 2.15 and torchtitan 0.3.0. Exit codes: 0 fine, 2 usage, 3 torchtitan cannot
build or trace what was asked for.
"""
from __future__ import annotations

import argparse
import atexit
import contextlib
import copy
import ctypes
import functools
import importlib
import importlib.metadata
import os
import sys

from .errors import GraphFileError
from .exporter import export
from .files import check_output
from .layers import resize_layers
from .parallel_model import build_loss, parallelize
from .roles import describe_process_groups, describe_roles

DEFAULT_CONFIGS = {
    "deepseek_v3": "graph_trainer_deepseek_v3_debugmodel",
    "qwen3": "graph_trainer_qwen3_debugmodel_moe",
    "llama3": "graph_trainer_llama3_debugmodel",
    "muse_glimmer": "graph_trainer_muse_glimmer_debugmodel",
}
TRACER = "torchtitan.experiments.graph_trainer"
SUPPORTED_TORCHTITAN = "0.3."
LAST_NORMALIZING_PASS = "selective_activation_remat_pass"


class TraceError(Exception):
    """What was asked for cannot be traced; the message says why and what to change."""


# ------------------------------------------------------------------------- absent devices
def hide_missing_gpu() -> None:
    """Let autograd run on fake CUDA tensors in a CUDA build of torch that finds no device.

    The autograd engine asks the CUDA backend whether a device has a context, and the
    backend answers by initialising the driver. Here that one virtual function is made to
    answer no: the backend object gets a copy of its vtable with one slot replaced.
    Nothing is changed where there is a device, or in a build without CUDA.
    """
    import torch

    if torch.version.cuda is None or torch.cuda.device_count() > 0:
        return
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    get_backend = library._ZN2at6detail12getCUDAHooksEv
    get_backend.restype = ctypes.c_void_p
    # at::AcceleratorHooksInterface begins: two destructor slots, isBuilt, isAvailable,
    # hasPrimaryContext. Two words (offset, type info) precede a vtable.
    header, has_context, slots = 2, 4, 96
    vtable_of = ctypes.cast(get_backend(), ctypes.POINTER(ctypes.c_void_p))
    original = vtable_of[0]
    words = ctypes.cast(original, ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * (header + slots))(*(words[i] for i in range(-header, slots)))
    answer_no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(
        lambda backend, device: False)
    table[header + has_context] = ctypes.cast(answer_no, ctypes.c_void_p).value
    vtable_of[0] = ctypes.addressof(table) + header * ctypes.sizeof(ctypes.c_void_p)

    def restore(kept=(table, answer_no)):
        vtable_of[0] = original

    atexit.register(restore)
    torch.cuda.set_device = lambda device: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.get_device_name = lambda device=None: "fake"
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False  # autocast takes part


def announce_accelerator() -> None:
    """Say that the absent device is the accelerator: the compile-on-one-rank mode asks which it is.

    torch then also asks how fast the device is, to judge costs that the trace does not depend on:
    an H100's figures.
    """
    import torch
    import torch._inductor.utils as inductor

    if torch.version.cuda is None or torch.cuda.device_count() > 0:
        return
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    torch.accelerator.current_device_index = lambda: 0
    inductor._get_device_dram_gbps = lambda device: 3350.0
    inductor._get_device_tflops = lambda dtype, device: 989.0


def allow_marked_fake_inputs(tracer) -> None:
    """Teach the tracer to make symbolic sizes for inputs that are already fake.

    Symbols are only made from real tensors. A marked fake input is therefore converted by
    way of a meta tensor with the same marks, and the result moved to the input's device.
    """
    import torch

    dynamic_shapes = importlib.import_module(f"{TRACER}.dynamic_shapes")
    marks = dynamic_shapes._DYNAMO_SHAPE_ANNOTATION_NAMES
    convert = tracer._fakeify_input

    def copy_marks(source, target):
        for mark in marks:
            if hasattr(source, mark):
                setattr(target, mark, getattr(source, mark))
        return target

    def fakeify(mode, tensor, *, input_name):
        if dynamic_shapes._symbolic_context_for_marked_dims(tensor) is None:
            return convert(mode, tensor, input_name=input_name)
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        symbolic = convert(mode, copy_marks(tensor, meta), input_name=input_name)
        with mode:
            moved = torch.empty_strided(symbolic.shape, symbolic.stride(), dtype=symbolic.dtype,
                                        device=tensor.device)
        return copy_marks(symbolic, moved)

    tracer._fakeify_input = fakeify


# --------------------------------------------------------------------------- configuration
def make_config(options):
    """torchtitan's configuration object for the command line's options."""
    registry = importlib.import_module(f"{TRACER}.{options.model}.config_registry")
    name = options.config or DEFAULT_CONFIGS[options.model]
    make = getattr(registry, name, None)
    if make is None:
        known = sorted(n for n in vars(registry) if n.startswith("graph_trainer_"))
        raise TraceError(f"{options.model} has no configuration {name}; it has {', '.join(known)}")
    try:
        config = make()
    except ImportError as error:
        first_line = str(error).strip().partition("\n")[0]
        raise TraceError(f"torchtitan: {name} needs what is not installed: {first_line}") from None
    if options.layers:
        config.model_spec.model.layers = resize_layers(config.model_spec.model.layers,
                                                       options.layers)
    config.training.local_batch_size = options.tokens // options.sequence
    config.training.seq_len = options.sequence
    parallelism = config.parallelism
    parallelism.data_parallel_replicate_degree = options.dp_replicate
    parallelism.data_parallel_shard_degree = options.dp_shard
    parallelism.tensor_parallel_degree = options.tp
    parallelism.expert_parallel_degree = options.ep
    parallelism.pipeline_parallel_degree = 1
    parallelism.context_parallel_degree = options.cp
    overlap = config.compile.ep_overlap
    overlap.enabled = bool(options.eager_chunk) or not options.static
    overlap.strategy = "eager" if options.eager_chunk else "graph"
    overlap.chunk_dim = options.dim
    overlap.module_fqn = options.eager_chunk or "layers.*.moe"
    if options.loss == "plain":
        use_plain_loss(config)
    return config


def use_plain_loss(config):
    """Cross-entropy in one piece: backward has one seed, as partitioners expect."""
    from torchtitan.components.loss import CrossEntropyLoss

    pieces = getattr(config.loss, "loss_fn", config.loss)
    vocabulary = {"global_vocab_size": pieces.global_vocab_size} if hasattr(pieces, "global_vocab_size") else {}
    config.loss = CrossEntropyLoss.Config(**vocabulary)


# --------------------------------------------------------------------------------- tracing
def build_model(config, dims):
    """The parallelised model with fake parameters, and its loss function."""
    from torch._subclasses import FakeTensorMode

    model = parallelize(config, dims)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        model.to_empty(device="cuda")
    model.train()
    return model, build_loss(config, model), fake


def uses_dot_product_attention(model) -> bool:
    """Whether attention is torch's scaled_dot_product_attention, which takes no masks here."""
    from torchtitan.models.common.attention import ScaledDotProductAttention

    config = model.config.first_attention
    return config is not None and isinstance(config.inner_attention, ScaledDotProductAttention.Config)


def choose_cudnn_attention() -> None:
    """Trace scaled_dot_product_attention as cuDNN's kernel, torchtitan's first choice on Hopper.

    torch's own choice asks the CUDA driver.
    """
    import types

    import torch
    from torchtitan.models.common import attention

    def attend(q, k, v, *, scale=None, is_causal=False, enable_gqa=False):
        if enable_gqa and q.shape[-3] != k.shape[-3]:
            raise TraceError("dot-product attention with groups of query heads cannot be traced")
        return torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, is_causal, False, scale=scale)[0]

    functional = types.SimpleNamespace(**vars(torch.nn.functional))
    functional.scaled_dot_product_attention = attend
    attention.F = functional


def count_ranks(options) -> int:
    return options.dp_replicate * options.dp_shard * options.cp * options.tp


def make_user_inputs(options, config, dims, model, fake):
    """The step's arguments: tokens, labels, number of valid tokens, and keyword arguments."""
    import torch
    from torch.distributed.tensor.experimental._context_parallel import _attention as shared
    from torchtitan.distributed.context_parallel import prepare_context_parallel_input
    from torchtitan.models.common import attention

    attention._compiled_create_block_mask = attention.create_block_mask
    shared._compiled_create_block_mask = shared.create_block_mask
    shape = (options.tokens // options.sequence, options.sequence)
    with fake:
        tokens, labels = (torch.empty(shape, dtype=torch.int64, device="cuda:0") for _ in range(2))
        valid = torch.tensor(options.tokens * options.dp_replicate * options.dp_shard, device="cuda:0")
        positions = torch.arange(options.sequence, dtype=torch.int32, device="cuda:0")
        positions = positions.expand(shape).contiguous()
        keywords = {"positions": positions}
        if not uses_dot_product_attention(model):
            masks = model.get_attention_masks(positions=positions)
            if masks is not None:
                keywords["attention_masks"] = masks
        if dims.cp_enabled:
            tokens, labels, keywords = prepare_context_parallel_input(
                tokens, labels, keywords, dims.get_mesh("cp"), tokens.device,
                config.parallelism.context_parallel_load_balancer,
                config.parallelism.context_parallel_ptrr_mask_key)
    return tokens, labels, valid, keywords


def trace(config, dims, model, loss, arguments):
    """torchtitan's TracedResult of forward, loss and backward."""
    import torch

    tracer = importlib.import_module(f"{TRACER}.make_fx_tracer")
    registry = importlib.import_module(f"{TRACER}.registry")
    importlib.import_module(f"{TRACER}.passes")  # registers the input preparers
    keys = importlib.import_module(f"{TRACER}.configs").trace_input_preparer_keys(config.compile)
    make_step = importlib.import_module(f"{TRACER}.trainer").make_fwd_bwd_step
    importlib.import_module(f"{TRACER}.common_utils").maybe_register_blockmask_pytree_node()
    allow_marked_fake_inputs(tracer)
    if uses_dot_product_attention(model):
        choose_cudnn_attention()

    def prepare(args, kwargs):
        for key in keys:
            if key in registry.TRACE_INPUT_PREPARERS:
                registry.TRACE_INPUT_PREPARERS[key](config.compile, args, kwargs)

    def prepare_call(args, kwargs):
        for key in keys:
            if key in registry.TRACE_CALL_INPUT_PREPARERS:
                changed = registry.TRACE_CALL_INPUT_PREPARERS[key](config.compile, args, kwargs)
                args, kwargs = changed or (args, kwargs)
        return args, kwargs

    context = torch.distributed.tensor.parallel.loss_parallel() if dims.tp_enabled \
        else contextlib.nullcontext()
    with context:
        return tracer.minimal_fx_tracer(make_step(model, loss), module=model,
                                        prepare_inputs=prepare,
                                        prepare_call_inputs=prepare_call)(*arguments)


def normalize(traced, config, dims):
    """Run torchtitan's passes up to recomputation, which graph chunking starts from."""
    passes = importlib.import_module(f"{TRACER}.passes")
    config = copy.copy(config)
    config.compile = copy.deepcopy(config.compile)
    config.compile.ep_overlap.enabled = False
    graph = traced.gm
    inputs = list(traced.example_inputs)
    for run in passes.compile_time_passes(traced, config, parallel_dims=dims,
                                          include_inductor=False):
        graph = run(graph, inputs)
        name = (run.func if isinstance(run, functools.partial) else run).__name__
        if name == LAST_NORMALIZING_PASS:
            return graph
    raise TraceError(f"this torchtitan has no {LAST_NORMALIZING_PASS}; use torchtitan"
                     f" {SUPPORTED_TORCHTITAN}x")


# ----------------------------------------------------------------------------------- graphs
def describe_axes(options) -> dict[str, int]:
    """The degrees of the job's parallelism; those that few jobs have only where they are more than 1."""
    rare = {"dp_replicate": options.dp_replicate, "cp": options.cp}
    return {"dp_shard": options.dp_shard, "tp": options.tp, "ep": options.ep,
            **{name: degree for name, degree in rare.items() if degree > 1}}


def trace_step(options) -> tuple:
    """Trace what the options say: the GraphModule, and the keywords to export it with."""
    try:
        import torch
        version = importlib.metadata.version("torchtitan")
    except ImportError as error:
        raise TraceError(f"{error}; install torch 2.15 and torchtitan 0.3.0") from None
    if not version.startswith(SUPPORTED_TORCHTITAN):
        raise TraceError(f"torchtitan {version} is installed; install torchtitan 0.3.0")
    hide_missing_gpu()
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.utils import set_spmd_backend

    config = make_config(options)
    set_spmd_backend(config.parallelism.spmd_backend)
    world = count_ranks(options)
    torch.distributed.init_process_group("fake", rank=options.rank, world_size=world)
    if options.rank_agnostic:
        torch.distributed.config.compile_on_one_rank = True
        announce_accelerator()
    try:
        dims = ParallelDims(dp_shard=options.dp_shard, dp_replicate=options.dp_replicate, cp=options.cp,
                            tp=options.tp, pp=1, ep=options.ep, world_size=world,
                            spmd_backend=config.parallelism.spmd_backend)
        dims.build_mesh()
        model, loss, fake = build_model(config, dims)
        arguments = make_user_inputs(options, config, dims, model, fake)
        traced = trace(config, dims, model, loss, arguments)
        graph = normalize(traced, config, dims) if options.normalize else traced.gm
    except Exception as error:  # whatever torchtitan raises for what it does not support
        if options.verbose or isinstance(error, TraceError):
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise TraceError(f"torchtitan: {type(error).__name__}: {first_line}"
                         " (-v shows where)") from None
    inputs, outputs = describe_roles(traced, model, arguments)
    meshes = {name: {"axes": list(mesh.mesh_dim_names or ()), "shape": list(mesh.shape)}
              for name, mesh in dims._global_meshes.items()}
    info = {"model": options.model, "config": options.config or DEFAULT_CONFIGS[options.model],
            "stage": "1b_remat" if options.normalize else "0_traced",
            "options": {"tokens": options.tokens, "sequence": options.sequence,
                        "static": options.static, "dim": options.dim,
                        "eager_chunk": options.eager_chunk},
            "compile_on_one_rank": options.rank_agnostic,
            "num_layers": len(config.model_spec.model.layers), "global_meshes": meshes,
            "axes": describe_axes(options),
            "world_size": world, "rank": options.rank, "torch": str(torch.__version__), "torchtitan": version,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "num_static_inputs": traced.num_static_inputs}
    return graph, {"inputs": inputs, "outputs": outputs, "info": info,
                   "process_groups": describe_process_groups(dims)}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trace_torchtitan.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", choices=sorted(DEFAULT_CONFIGS), default="deepseek_v3",
        help="torchtitan's model (default deepseek_v3)")
    add("--config", metavar="NAME", help="configuration function of the model's graph_trainer"
                                         " registry (default: its debug model)")
    add("--tokens", type=int, default=1024, metavar="N", help="tokens per data-parallel rank (default 1024)")
    add("--sequence", type=int, default=256, metavar="N", help="tokens per sequence (default 256)")
    add("--dp-shard", type=int, default=4, metavar="N", help="data-parallel shards (default 4)")
    add("--dp-replicate", type=int, default=1, metavar="N",
        help="data-parallel replicas, each of --dp-shard shards (default 1)")
    add("--cp", type=int, default=1, metavar="N",
        help="context-parallel ranks, which share the tokens of a data-parallel rank; takes --static"
             " (default 1)")
    add("--ep", type=int, default=1, metavar="N", help="expert-parallel ranks (default 1)")
    add("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks (default 1)")
    add("--layers", type=int, metavar="N", help="number of layers (default: the model's)")
    add("--dim", choices=("batch", "seq"), default="batch",
        help="dimension of the token grid whose size becomes a symbol (default batch)")
    add("--static", action="store_true", help="trace with all sizes as numbers")
    add("--eager-chunk", choices=("layers.*", "layers.*.moe"),
        help="let torchtitan divide these modules in two before tracing (sizes are numbers then)")
    add("--rank", type=int, default=0, metavar="R",
        help="rank of the job whose graph is traced (default 0); trace each in a process of its own")
    add("--rank-agnostic", action="store_true",
        help="trace one graph for all ranks: groups and coordinates are looked up in meshes")
    add("--loss", choices=("model", "plain"), default="model",
        help="the model's loss, which may be in pieces, or cross-entropy in one (default model)")
    add("--normalize", action="store_true",
        help="also run torchtitan's clean-up, memory policy and recomputation passes")
    add("-v", "--verbose", action="store_true", help="show torchtitan's log and tracebacks")
    add("-o", "--output", required=True, metavar="OUT", help="graph file to write")
    return parser


def parse_options(arguments: list[str] | None = None):
    """The checked command line; exits with 2 if it makes no sense."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    for name in ("tokens", "sequence", "dp_replicate", "dp_shard", "cp", "ep", "tp", "layers"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.tokens % options.sequence:
        parser.error(f"--tokens {options.tokens} is not a multiple of --sequence"
                     f" {options.sequence}")
    world, degrees = count_ranks(options), "--dp-replicate times --dp-shard times --cp times --tp"
    if options.dp_shard * options.cp * options.tp % options.ep:
        parser.error(f"--ep {options.ep} does not divide the {options.dp_shard * options.cp * options.tp} ranks"
                     " of --dp-shard times --cp times --tp")
    if options.cp > 1 and not (options.static or options.eager_chunk):
        parser.error(f"--cp {options.cp} takes --static: context parallelism divides sequences of known length only")
    what, size = ("sequences", options.tokens // options.sequence) if options.dim == "batch" \
        else ("tokens in a sequence", options.sequence)
    if size % 2 and not (options.static or options.eager_chunk):
        parser.error(f"an odd number of {what} ({size}) cannot be a symbol, torchtitan says; trace an even number, or"
                     " with --static")
    if not 0 <= options.rank < world:
        parser.error(f"--rank {options.rank} is none of the {world} ranks of {degrees}")
    if options.rank_agnostic and options.rank:
        parser.error("--rank-agnostic is traced on rank 0; epweave specialize makes other ranks' graphs")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    if not options.verbose:
        import logging
        import warnings
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
    try:
        check_output(options.output)
        graph, facts = trace_step(options)
        export(graph, options.output, **facts)
    except (TraceError, GraphFileError) as error:
        print("\n".join([f"trace_torchtitan: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 3
    print(f"trace_torchtitan: {len(graph.graph.nodes)} nodes in {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
