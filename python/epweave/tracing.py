"""A training step of any PyTorch model as one graph: forward, loss and backward, with what the passes need to know.

    step = epweave.trace(lambda model, tokens, labels: loss_of(model(tokens), labels), model,
                         {"tokens": tokens, "labels": labels}, groups={"ep": mesh})
    step.export("step.epw")
    chunked = step.with_graph(epweave.rewrite(step, preset="ep-overlap", roots="layers.*.moe", symbolize="yes").graph)
    loss, gradients = chunked(model, {"tokens": tokens, "labels": labels})
"""
from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .bags import bags_taken_apart
from .collectives import (as_functional_collectives, collective_error, drop_copies_of_results,
                          drop_splits_that_are_joined, require_functional_collectives, users_line)
from .counts import count_decompositions
from .errors import UsageError
from .exporter import export, live_process_groups
from .labels import annotate
from .functions import function_decompositions
from .lists import list_decompositions
from .norms import instance_norms_as_group_norms, norm_decompositions
from .of_torch import torch_decompositions
from .pooling import pooling_decompositions
from .operators import short_frame
from .recurrent import PackedSequences, recurrent_layers_taken_apart
from .roles import expand_role
from .subclasses import Layout, unwrap, wrap
from .views import drop_restrides, name_views, view_decompositions

if TYPE_CHECKING:
    from .kinds import GraphModule, Inputs, Module, Path

_LEAVES = (int, float, bool, str, type(None))


@dataclasses.dataclass
class Step:
    """A traced training step: its graph, and what its inputs, outputs and process groups stand for.

    `graph` takes the local tensors of the model's state in the order of `state`, then those of the user's inputs, and
    returns the loss, what the step function returned behind it, and a gradient for each parameter of `trained`.
    """

    graph: GraphModule
    inputs: list[dict]
    outputs: list[dict]
    process_groups: list[dict]
    info: dict
    state: list[str] = dataclasses.field(repr=False)
    trained: list[str] = dataclasses.field(repr=False)
    _input_spec: object = dataclasses.field(repr=False)
    _output_spec: object = dataclasses.field(repr=False)
    _output_layouts: list[Layout | None] = dataclasses.field(repr=False)
    _constants: dict[int, tuple[str, object]] = dataclasses.field(repr=False)  # inputs that are no tensors, by place

    def export(self, path: Path) -> None:
        """Write the step as a graph file (see `epweave.export`)."""
        export(self.graph, path, inputs=self.inputs, outputs=self.outputs, process_groups=self.process_groups,
               info=self.info)

    def with_graph(self, graph: GraphModule) -> Step:
        """The same step computed by another graph: one that `epweave.rewrite` made of this one."""
        return dataclasses.replace(self, graph=graph)

    def __call__(self, model: Module, inputs: Inputs) -> tuple[Any, dict[str, Any]]:
        """Runs the graph with the model's state: (what the step function returns, {parameter: gradient}).

        Nothing is written to `.grad`. A loaded graph whose passes added process groups needs
        `epweave.create_process_groups` first.
        """
        import torch
        from torch.utils import _pytree
        state = _state_of(model)
        if list(state) != self.state:
            changed = sorted(set(state) ^ set(self.state))
            raise UsageError(f"the model has other parameters or buffers than when it was traced: {changed[:3]}",
                             remedy="trace the step again")
        leaves, spec = _pytree.tree_flatten(_as_kept(inputs))
        if spec != self._input_spec:
            raise UsageError(f"the inputs are {spec}, traced were {self._input_spec}",
                             remedy="give what `trace` was given, in the same order")
        for place, (name, traced) in self._constants.items():
            if type(leaves[place]) is not type(traced) or leaves[place] != traced:
                raise UsageError(f"input {name!r} is {leaves[place]!r}; the step was traced with {traced!r}, which its graph holds",
                                 remedy="trace the step again, or give a tensor")
        with torch.no_grad():
            flat = self.graph(*(part for x in (*state.values(), *leaves) for part in unwrap(x)[0]))
        values = wrap(list(flat), self._output_layouts)
        count = len(values) - len(self.trained)
        result = _pytree.tree_unflatten(values[:count], self._output_spec)
        return result, dict(zip(self.trained, values[count:]))


def _as_kept(inputs):
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, (list, tuple)):
        raise UsageError(f"inputs= is a {type(inputs).__name__}",
                         remedy='give a dictionary, {"tokens": tokens}, or a list of what the step function takes')
    return tuple(inputs)


def _state_of(model) -> dict:
    """Parameters and buffers by name; one that has several names under each of them."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def _require_takes(step, inputs) -> None:
    """Raises UsageError where `step` is no function of a model and these inputs."""
    if not callable(step):
        raise UsageError(f"the step function is a {type(step).__name__}",
                         remedy="give a function: step(model, tokens, labels) returns the loss")
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):  # of a builtin
        return
    try:
        signature.bind(None, **inputs) if isinstance(inputs, dict) else signature.bind(None, *inputs)
    except TypeError as error:
        raise UsageError(f"the step function does not take the inputs: {error}",
                         remedy=f"it is called with the model in front; it takes {signature}") from None


def _input_names(step: Callable, inputs) -> list[str]:
    """What the user's inputs are called: their keys, else the step function's parameters."""
    if isinstance(inputs, Mapping):
        return list(inputs)
    try:
        words = [p.name for p in list(inspect.signature(step).parameters.values())[1:]
                 if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        words = []
    return [words[i] if i < len(words) else f"input{i}" for i in range(len(inputs))]


@contextlib.contextmanager
def _named_modules(model) -> Iterator[None]:
    """Each call of a module says its path in the graph: metadata `custom`, key `module_fqn`.

    make_fx writes `nn_module_stack` only where it traces a module, not a function that calls one.
    """
    from torch.fx.traceback import annotate_fn
    own = {}
    try:
        for path, module in model.named_modules():
            if path:
                own[module] = module.__dict__.get("forward")
                module.forward = annotate_fn({"module_fqn": path})(module.forward)
        yield
    finally:
        for module, forward in own.items():
            if forward is None:
                del module.forward
            else:
                module.forward = forward


def _fake(mode, tensor, name: str, dim: int | None, device):
    """A fake tensor of the same type; a symbol for the extent of dimension `dim`."""
    import torch
    from torch._dynamo.source import ConstantSource
    from torch._subclasses import FakeTensor
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        place = tensor.device if tensor.device.type != "meta" else torch.device(device or "cpu")
        if dim is not None:
            raise UsageError(f"input {name!r} is not real, and its dimension {dim} is to be a symbol",
                             remedy="give a real tensor, or leave tokens= out and rewrite with the pass symbolize")
        with mode:
            return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=place,
                                       requires_grad=tensor.requires_grad)
    if dim is None:
        return mode.from_tensor(tensor, static_shapes=True)
    if not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        raise UsageError(f"input {name!r} has {tensor.dim()} dimensions and none numbered {dim!r}",
                         remedy=f"name the dimension of the tokens: {{{name!r}: 0}}")
    sizes = [DimDynamic.STATIC] * tensor.dim()
    sizes[dim] = DimDynamic.DYNAMIC
    return mode.from_tensor(tensor, source=ConstantSource(name),
                            symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))


def _as_own_object(tensor):
    """A tensor of the same memory: one object that is given as two inputs would be one value of the graph."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _require_mapping(name: str, value, example: str) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(f"{name}= is a {type(value).__name__}, not a dictionary", remedy=f"give {name}={example}")


def _group_table(groups: Mapping[str, object] | None) -> tuple[list[dict], dict]:
    """The rows of the process groups, each with the names of its axes, and the meshes that cover the world."""
    import torch.distributed as dist
    rows = live_process_groups()
    if not rows:
        if groups:
            raise UsageError("groups= is given, but torch.distributed is not initialised",
                             remedy="call torch.distributed.init_process_group before trace")
        return [], {}
    axes: dict[str, list[str]] = {}
    meshes: dict[str, dict] = {}
    for name, group in (groups or {}).items():
        names = getattr(group, "mesh_dim_names", None)
        if hasattr(group, "mesh"):  # a DeviceMesh, of one axis or several
            words = list(names or ([name] if group.mesh.dim() == 1 else []))
            if len(words) != group.mesh.dim():
                raise UsageError(f"the mesh {name!r} has {group.mesh.dim()} dimensions without names",
                                 remedy="give mesh_dim_names to init_device_mesh")
            for dim, axis in enumerate(words):
                axes.setdefault(group.get_group(dim).group_name, []).append(axis)
            # The table gives a mesh no ranks: they are taken to be in order.
            if group.mesh.flatten().tolist() == list(range(dist.get_world_size())):
                meshes[name] = {"axes": words, "shape": list(group.mesh.shape)}
        elif hasattr(group, "group_name"):
            axes.setdefault(group.group_name, []).append(name)
        else:
            raise UsageError(f"groups= has a {type(group).__name__} for the axis {name!r}",
                             remedy="give a process group of torch.distributed, or a DeviceMesh")
    return [{**row, **({"axes": axes[row["name"]]} if row["name"] in axes else {})} for row in rows], meshes


@contextlib.contextmanager
def _no_nested_compile() -> Iterator[None]:
    """What the model compiles itself is traced as its operators."""
    import torch
    before = torch._dynamo.config.error_on_nested_fx_trace
    torch._dynamo.config.error_on_nested_fx_trace = False
    try:
        yield
    finally:
        torch._dynamo.config.error_on_nested_fx_trace = before


@contextlib.contextmanager
def _no_sizes_compared_by_checkpoint() -> Iterator[None]:
    """torch.utils.checkpoint compares the sizes of what backward computes again with forward's. In a trace, sizes that come
    from data, such as how many rows the experts get, are other symbols the second time, which nothing can compare."""
    from torch.utils import checkpoint
    checks = checkpoint._allowed_determinism_checks_to_fns
    before = checks["default"]
    checks["default"] = checks["none"]
    try:
        yield
    finally:
        checks["default"] = before


def _checkpoint_error(error: Exception) -> UsageError | None:
    """What to say where a reentrant checkpoint refuses the gradients that a trace asks for; None of any other error."""
    if not (isinstance(error, RuntimeError) and "use_reentrant=True" in str(error)):
        return None
    return UsageError("torch.utils.checkpoint with use_reentrant=True cannot be traced: its backward takes no list of inputs",
                      remedy="give checkpoint use_reentrant=False")


@contextlib.contextmanager
def _all_lines_of_the_step() -> Iterator[None]:
    """Each call is recorded with every line of the step that leads to it; make_fx keeps those of functions called `forward`."""
    import torch
    from torch.fx.experimental.proxy_tensor import PythonKeyTracer
    from torch.fx.experimental.symbolic_shapes import uninteresting_files
    library, dull = os.path.join(os.path.dirname(torch.__file__), ""), uninteresting_files()
    ours = os.path.join(os.path.dirname(__file__), "")  # what runs in the place of an operator
    run, of_torch = _Tracer.run.__code__, PythonKeyTracer._filter_traceback_frames

    def keep(self, frames: traceback.StackSummary) -> traceback.StackSummary:
        starts = [i for i, frame in enumerate(frames) if (frame.filename, frame.name) == (run.co_filename, run.co_name)]
        if not starts:
            return of_torch(self, frames)
        return traceback.StackSummary.from_list(
            [frame for frame in frames[starts[-1] + 1:]
             if frame.filename not in dull and not frame.filename.startswith(ours)
             and (frame.name == "forward" or not frame.filename.startswith(library))])

    own = vars(PythonKeyTracer).get("_filter_traceback_frames")
    PythonKeyTracer._filter_traceback_frames = keep
    try:
        yield
    finally:
        if own is None:
            del PythonKeyTracer._filter_traceback_frames
        else:
            PythonKeyTracer._filter_traceback_frames = own


def _bags(decompositions: Mapping | None) -> contextlib.AbstractContextManager:
    """Embedding bags are taken apart, unless `decompositions` says what becomes of their calls."""
    import torch
    kept = torch.ops.aten._embedding_bag.default in (decompositions or {})
    return contextlib.nullcontext() if kept else bags_taken_apart()


def _symbols_kept(has_symbols: bool) -> contextlib.AbstractContextManager:
    """Kernels in C++ that read an extent as a number would make a symbol that number: torch's kernels in Python run instead."""
    from torch._dispatch.python import enable_python_dispatcher
    return enable_python_dispatcher() if has_symbols else contextlib.nullcontext()


def _second_backward_error(error: Exception) -> UsageError | None:
    """What to say where the step function has freed what the gradients that a trace asks for need; None of any other error."""
    if not (isinstance(error, RuntimeError) and "backward through the graph a second time" in str(error)):
        return None
    return UsageError("the step function runs backward itself, and `trace` cannot run it again",
                      remedy="return the loss and leave backward to `trace`, or keep what it needs where the step function takes"
                             " gradients, as for an optimizer: torch.autograd.grad(loss, parameters, retain_graph=True)")


def _data_dependent_error(error: Exception) -> UsageError | None:
    """What to say where Python asks what a tensor holds, which a trace does not know; None of any other error."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
    source = users_line(error)
    at = f", at {source}" if source else ""
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return UsageError(f"{error.func} cannot be traced, as what it returns depends on what its tensors hold{at}",
                          op=str(error.func), source=source, remedy="leave it outside the step that is traced")
    if not isinstance(error, GuardOnDataDependentSymNode):
        return None
    return UsageError(f"what runs depends on `{error.cond}`, a number that a tensor holds, and a graph has no branches{at}",
                      source=source,
                      remedy="compute both sides and choose with torch.where; leave a check, as of infinities, out of the step"
                             " and return what it reads behind the loss; of a size, say what holds: torch._check(size > 0)")


def _packing_error(error: Exception) -> UsageError | None:
    """What to say where the step packs sequences; None of any other error."""
    if not isinstance(error, PackedSequences):
        return None
    source = users_line(error)
    return UsageError(f"packed sequences cannot be traced: how many rows a step of the layer has is read from what the lengths hold"
                      f"{f', at {source}' if source else ''}", source=source,
                      remedy="give the layer the padded sequences, and take each one's last state by its length (gather)")


def _require_own_forward(model) -> None:
    """Refuses modules whose parameters or gradients hooks of torch's wrappers replace while they run."""
    import torch.distributed as dist
    if not dist.is_available():
        return
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.nn.parallel import DistributedDataParallel
    for path, module in model.named_modules():
        what = f"the module {path!r}" if path else "the model"
        if isinstance(module, DistributedDataParallel):
            raise UsageError(f"{what} is a DistributedDataParallel, whose hooks reduce gradients where no graph sees it",
                             module=path or None,
                             remedy="trace what it wraps, model.module, and reduce the gradients that the step returns, or in"
                                    " the step function with torch.distributed._functional_collectives.all_reduce")
        if isinstance(module, (FSDPModule, FullyShardedDataParallel)):
            name = "fully_shard" if isinstance(module, FSDPModule) else "FullyShardedDataParallel"
            raise UsageError(f"{what} is sharded by {name}, whose hooks gather parameters where no graph sees it",
                             module=path or None,
                             remedy=f"trace the model before {name}; parameters that are DTensors, gathered in forward"
                                    " (param.redistribute(..).to_local(), as torchtitan's simple_fsdp does), are in the graph")


class _Tracer:
    """The values of a step by name, and the function of plain tensors that make_fx traces."""

    def __init__(self, step: Callable, model, inputs):
        import torch
        from torch.utils import _pytree
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"the model is a {type(model).__name__}", remedy="give a torch.nn.Module")
        _require_own_forward(model)
        self.step, self.model, self.inputs = step, model, _as_kept(inputs)
        _require_takes(step, self.inputs)
        self.state = _state_of(model)
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        self.wanted = [name for name, x in self.parameters.items() if x.requires_grad]
        if not self.wanted:
            raise UsageError("no parameter of the model requires a gradient",
                             remedy="trace the model as it is trained")
        self.input_names = _input_names(step, self.inputs)
        paths, self.input_spec = _pytree.tree_flatten_with_path(self.inputs)
        self.values = [*self.state.items(), *(self.named_leaf(path, leaf) for path, leaf in paths)]
        self.layouts: list[Layout | None] = []
        self.trained: list[str] = []  # those that the loss depends on
        self.result_count, self.output_spec = 0, None
        self.output_layouts: list[Layout | None] = []

    def named_leaf(self, path, leaf) -> tuple:
        import torch
        from torch.utils import _pytree
        head = path[0].key if isinstance(self.inputs, dict) else self.input_names[path[0].idx]
        name = f"{head}{_pytree.keystr(path[1:])}"
        if not isinstance(leaf, (torch.Tensor, *_LEAVES)):
            raise UsageError(f"input {name!r} of the step is a {type(leaf).__name__}",
                             remedy="give tensors and numbers; let the step function hold the rest")
        return name, leaf

    def make_fakes(self, mode, tokens: Mapping[str, int], device) -> list:
        """The plain tensors of all values, fake."""
        import torch
        self.layouts, fakes = [], []
        for i, (name, x) in enumerate(self.values):
            parts, layout = unwrap(x)
            dim = tokens.get(name) if i >= len(self.state) else None
            if dim is not None and (layout is not None or not isinstance(x, torch.Tensor)):
                raise UsageError(f"tokens= names {name!r}, which is a {type(x).__name__}",
                                 remedy="name inputs that are plain tensors")
            self.layouts.append(layout)
            if i >= len(self.state):
                parts = [_as_own_object(part) if isinstance(part, torch.Tensor) else part for part in parts]
            fakes += [_fake(mode, part, name, dim, device) if isinstance(part, torch.Tensor) else part
                      for part in parts]
        return fakes

    def run(self, *flat) -> list:
        """The step on plain tensors: plain results, then gradients."""
        import torch
        from torch.nn.utils import stateless
        from torch.utils import _pytree
        values = wrap(list(flat), self.layouts)
        given = _pytree.tree_unflatten(values[len(self.state):], self.input_spec)
        with stateless._reparametrize_module(self.model, dict(zip(self.state, values))):
            result = self.step(self.model, **given) if isinstance(given, dict) else self.step(self.model, *given)
            leaves, self.output_spec = _pytree.tree_flatten(result)
            self.check_results(leaves)
            live = dict(self.model.named_parameters(remove_duplicate=False))
            gradients = torch.autograd.grad(leaves[0], [live[name] for name in self.wanted], allow_unused=True)
        found = {name: gradient for name, gradient in zip(self.wanted, gradients) if gradient is not None}
        self.trained, self.result_count = list(found), len(leaves)
        flat, self.output_layouts = [], []
        for x in (*leaves, *found.values()):
            parts, layout = unwrap(x)
            flat += parts
            self.output_layouts.append(layout)
        return flat

    @staticmethod
    def check_results(leaves: list) -> None:
        import torch
        loss = leaves[0] if leaves else None
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.requires_grad:
            raise UsageError("the step function does not return a loss",
                             remedy="return a tensor without dimensions that depends on parameters, or a tuple or dictionary"
                                    " that begins with it")
        for x in leaves[1:]:
            if not isinstance(x, torch.Tensor):
                raise UsageError(f"the step function returns a {type(x).__name__} behind the loss",
                                 remedy="return tensors only")

    def input_roles(self) -> list[dict]:
        roles = []
        for i, ((name, x), layout) in enumerate(zip(self.values, self.layouts)):
            role = {"role": "user", "which": name}
            if i < len(self.state):
                role = {"role": "parameter" if name in self.parameters else "buffer", "fqn": name}
            if role["role"] == "parameter":
                role["requires_grad"] = x.requires_grad
            roles += expand_role(role, layout)
        return roles

    def output_roles(self) -> list[dict]:
        rows = [{"role": "loss"}, *({"role": "other"} for _ in range(self.result_count - 1)),
                *({"role": "grad", "fqn": name} for name in self.trained)]
        return [part for row, layout in zip(rows, self.output_layouts) for part in expand_role(row, layout)]


def _job_facts() -> dict:
    import torch
    import torch.distributed as dist
    facts = {"torch": str(torch.__version__)}
    if dist.is_available() and dist.is_initialized():
        facts.update(rank=dist.get_rank(), world_size=dist.get_world_size())
    return facts


def trace(step: Callable[..., Any], model: Module, inputs: Inputs, *, tokens: Mapping[str, int] | None = None,
          groups: Mapping[str, object] | None = None, label_exchanges: bool = True, device: str | None = None,
          decompositions: Mapping | None = None, info: dict | None = None) -> Step:
    """Trace `step(model, *inputs)`, or `step(model, **inputs)` of a dictionary, and its backward pass.

    `step` returns the loss, a tensor without dimensions, or a tuple that begins with it. Nothing is executed: tensors
    are fake, so that collectives need a process group but no other rank; `torch.distributed`'s own are made functional. Parameters may be DTensors; the graph has
    their local tensors. Gradients are those of `torch.autograd.grad`: what hooks do to `.grad` is not in the graph.

    `tokens` says which inputs count tokens, and in which dimension: {"tokens": 0}. That extent becomes a symbol, one
    for equal extents. Without, extents are numbers, and the pass `symbolize` gives them a symbol, which also serves
    models that torch cannot trace with one. `groups` maps the name of an axis to its process group or DeviceMesh.
    `label_exchanges=False` keeps the labels of token exchanges as the model wrote them (see `annotate`). `device` is
    where parameters on the device "meta" are to be. `decompositions` is make_fx's `decomposition_table`, beside what
    epweave takes apart itself: operators on lists (`_foreach_*`, of optimizers and clipping) become a call for each
    tensor, norms, pooling, interpolation and embedding bags means, products and lookups, pixel shuffles views
    (docs/own_model.md lists them); None for an operator keeps its calls. `info` is plain data that the file is to hold, too.
    """
    import torch
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.fx.traceback import preserve_node_meta

    _require_mapping("groups", groups, '{"ep": group}')
    _require_mapping("tokens", tokens, '{"tokens": 0}')
    tracer = _Tracer(step, model, inputs)
    for name in tokens or {}:
        if name not in (known := [x for x, _ in tracer.values[len(tracer.state):]]):
            raise UsageError(f"tokens= names {name!r}, which is no input", remedy=f"the inputs are {', '.join(known)}")
    rows, meshes = _group_table(groups)
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    fakes = tracer.make_fakes(mode, tokens or {}, device)
    # Backward on the calling thread, as what is traced there is known to this thread only.
    with (mode, tracing(TracingContext(mode)), preserve_node_meta(), _named_modules(model), _no_nested_compile(),
          _no_sizes_compared_by_checkpoint(), _all_lines_of_the_step(), torch.autograd.set_multithreading_enabled(False),
          torch.compiler._non_strict_tracing_context(), torch.compiler._patch_engine_backward(),
          as_functional_collectives(), _bags(decompositions), instance_norms_as_group_norms(), recurrent_layers_taken_apart(),
          _symbols_kept(bool(tokens))):
        try:
            table = {**torch_decompositions(), **list_decompositions(), **norm_decompositions(), **pooling_decompositions(),
                     **view_decompositions(), **count_decompositions(), **function_decompositions(), **(decompositions or {})}
            table = {op: decomposition for op, decomposition in table.items() if decomposition is not None}
            graph = make_fx(tracer.run, decomposition_table=table, record_stack_traces=True)(*fakes)
        except Exception as error:
            if said := (collective_error(error) or _checkpoint_error(error) or _second_backward_error(error)
                        or _packing_error(error) or _data_dependent_error(error)):
                raise said from error
            raise
    require_functional_collectives(graph)
    drop_copies_of_results(graph)
    drop_splits_that_are_joined(graph)
    drop_restrides(graph)
    name_views(graph)
    for node in graph.graph.nodes:
        node.meta.pop("eager_input_vals", None)  # fake tensors, for Inductor
        if (lines := node.meta.get("stack_trace")) and short_frame(lines) == lines:
            del node.meta["stack_trace"]  # a sum of gradients: a heading without lines
    annotate(graph, label_exchanges=label_exchanges)
    constants = {i: named for i, named in enumerate(tracer.values[len(tracer.state):]) if not isinstance(named[1], torch.Tensor)}
    return Step(graph, tracer.input_roles(), tracer.output_roles(), rows,
                {**_job_facts(), "global_meshes": meshes, **(info or {})}, list(tracer.state), tracer.trained,
                tracer.input_spec, tracer.output_spec, tracer.output_layouts, constants)
