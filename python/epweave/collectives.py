"""Collectives as a graph can hold them: functional ones, whose group is a name."""
from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import os
import traceback
import types
from collections.abc import Iterator

from .errors import UsageError
from .labels import module_of
from .operators import attribute_at, source_of

ASYNC_REMEDY = "leave async_op out: a schedule lets collectives run beside compute"
REMEDY = ("call it as dist.all_to_all_single, a name of the module torch.distributed, which `trace` makes functional; or"
          " call functional collectives: torch.distributed._functional_collectives.all_to_all_single_autograd(x,"
          " output_split_sizes, input_split_sizes, group), also in place of torch.distributed.nn.functional; likewise"
          " all_gather_tensor_autograd, reduce_scatter_tensor_autograd and all_reduce")


def _all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False) -> None:
    """dist.all_to_all as one exchange of the tensors' rows, which torch's table lacks."""
    import torch
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional
    if async_op:
        raise UsageError("a collective with async_op=True cannot be traced", remedy=ASYNC_REMEDY)
    tensors = [*input_tensor_list, *output_tensor_list]
    if not all(x.dim() and x.shape[1:] == tensors[0].shape[1:] for x in tensors):
        tensors = [x.reshape(-1) for x in tensors]
    given, results = tensors[:len(input_tensor_list)], tensors[len(input_tensor_list):]
    sent, received = ([x.shape[0] for x in each] for each in (given, results))
    is_even = all(isinstance(size, int) and size == sent[0] for size in (*sent, *received))
    sizes = (None, None) if is_even else (received, sent)
    group = dist.group.WORLD if group is None else group
    rows = functional.all_to_all_single(torch.cat(given), *sizes, group)  # and waits for it, in a trace
    for result, piece in zip(output_tensor_list, rows.split(received)):
        result.copy_(piece.view_as(result))


@contextlib.contextmanager
def as_functional_collectives() -> Iterator[None]:
    """In here collectives that are called as `torch.distributed.NAME` run as functional ones, whose result is copied into
    the caller's tensor: by torch's own table, with which its non-strict export takes them. Its mode for __torch_function__
    does not reach what autograd calls."""
    import torch.distributed as dist
    if not dist.is_available():
        yield
        return
    from torch.distributed import _functional_collectives as functional

    def remapped(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            given = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
            if "op" in given:
                given["op"] = functional.REDUCE_OP_TO_STR[given["op"]]
            return table[function](**given)
        return call

    table = {**functional.traceable_collective_remaps, dist.all_to_all: _all_to_all}
    # P2POp compares what it is given with these three.
    between_two = (dist.isend, dist.irecv, dist.batch_isend_irecv)
    names = {name: function for name, function in vars(dist).items()
             if type(function) is types.FunctionType and function in table
             and function not in between_two}
    for name, function in names.items():
        setattr(dist, name, remapped(function))
    try:
        yield
    finally:
        for name, function in names.items():
            setattr(dist, name, function)


_ALLOCATIONS = {"aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default"}
_SPLITS = {"aten.split.Tensor", "aten.split_with_sizes.default"}


def _split_of(node):
    """The split that a node is a piece of; None of any other."""
    is_piece = node.target is operator.getitem and str(node.args[0].target) in _SPLITS
    return node.args[0] if is_piece else None


def _is_result(node) -> bool:
    """Whether it is what a functional collective gives, or a piece of that, and nothing else shows its memory."""
    split = _split_of(node)
    source = node if split is None else split.args[0]
    if str(source.target) != "_c10d_functional.wait_tensor.default" or (split is not None and list(source.users) != [split]):
        return False
    collective = source.args[0]
    return _shown_by(collective) is None and collective.op == "call_function" and list(collective.users) == [source]


def _layout(node) -> str:
    val = node.meta["val"]
    return f"{list(val.shape)} {list(val.stride())} {val.dtype} {val.device}"


def _shown_by(node):
    """The value whose memory a call's result shows: of a view, of what it writes in place; None of a new one."""
    schema = getattr(node.target, "_schema", None)
    shows = node.target is operator.getitem or str(node.target) == "_c10d_functional.wait_tensor.default" or (
        schema is not None and any(x.alias_info for x in schema.returns))
    return node.args[0] if shows and node.args and hasattr(node.args[0], "users") else None


def _may_write(node, value) -> bool:
    """Whether a call writes into one of its arguments: of a call without a schema that is not known."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return True
    written = {x.name for x in schema.arguments if x.alias_info and x.alias_info.is_write}
    given = {**dict(zip((x.name for x in schema.arguments), node.args)), **node.kwargs}
    return any(value in (x if isinstance(x, (list, tuple)) else [x]) for name, x in given.items() if name in written)


def _is_written(node) -> bool:
    """Whether a call writes into the memory of a value, also into all that shows it."""
    while (shown := _shown_by(node)) is not None:
        node = shown
    sharing = [node]
    for value in sharing:
        if any(_may_write(user, value) for user in value.users):
            return True
        sharing += [user for user in value.users if _shown_by(user) is value]
    return False


def drop_copies_of_results(graph_module) -> None:
    """A result that is copied into all of a tensor that holds nothing yet takes that tensor's place.

        %y = new_empty(%x, [8, 4]); %w = wait_tensor(..); copy_(%y, %w); relu(%y)     ->     %w = wait_tensor(..); relu(%w)
    """
    graph = graph_module.graph
    place = {node: i for i, node in enumerate(graph.nodes)}
    for copy in list(graph.nodes):
        if str(copy.target) != "aten.copy_.default":
            continue
        target, view = copy.args[:2]
        is_view = str(view.target) == "aten.view.default" and _layout(view) == _layout(view.args[0])
        result = view.args[0] if is_view else view
        is_used_once = len(result.users) == 1 and len(view.users) == 1
        if not is_used_once or not _is_result(result):
            continue
        if str(target.target) not in _ALLOCATIONS or _layout(target) != _layout(result):
            continue
        if min(place[user] for user in target.users) < place[copy]:
            continue
        copy.replace_all_uses_with(result)
        graph.erase_node(copy)
        if view is not result:
            graph.erase_node(view)
        target.replace_all_uses_with(result)
        graph.erase_node(target)
    graph_module.recompile()


def drop_splits_that_are_joined(graph_module) -> None:
    """All pieces of a split, joined again in their order, are what was split: so all_to_all takes and gives lists.

        %p = split(%x, 4); cat([%p[0], %p[1]])     ->     %x

    The joined tensor is a copy. It may go where only exchanges read it, or where what was split is a collective's result
    that nothing else reads; and where neither is written.
    """
    graph = graph_module.graph
    for cat in list(graph.nodes):
        if str(cat.target) != "aten.cat.default" or not cat.args[0]:
            continue
        pieces = cat.args[0]
        split = _split_of(pieces[0])
        if split is None or [_split_of(x) for x in pieces] != [split] * len(pieces):
            continue
        whole = split.args[0]
        dims = [(x.args[at] if len(x.args) > at else 0) % whole.meta["val"].dim() for x, at in ((split, 2), (cat, 1))]
        if [x.args[1] for x in pieces] != list(range(len(split.meta["val"]))) or dims[0] != dims[1]:
            continue
        is_sent = all("all_to_all_single" in str(user.target) for user in cat.users)
        is_received = _is_result(pieces[0]) and all(list(x.users) == [cat] for x in pieces)
        if not (is_sent or is_received) or _layout(cat) != _layout(whole) or _is_written(whole) or _is_written(cat):
            continue
        cat.replace_all_uses_with(whole)
        for node in (cat, *pieces, split):
            if not node.users:
                graph.erase_node(node)
    graph_module.recompile()


def require_functional_collectives(graph_module) -> None:
    """Raises UsageError where a call takes a process group that is an object (dist.all_to_all_single)."""
    import torch

    def is_object(x) -> bool:
        if isinstance(x, torch.fx.Node):
            return x.op == "get_attr" and isinstance(attribute_at(graph_module, x.target), torch.ScriptObject)
        return isinstance(x, torch.ScriptObject)
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "namespace", "") != "c10d":
            continue
        if any(is_object(x) for x in (*node.args, *node.kwargs.values())):
            trace = node.meta.get("stack_trace")
            source = source_of(trace) if isinstance(trace, str) else None
            raise UsageError(f"{node.target} takes a process group that no graph can hold"
                             f"{f', at {source}' if source else ''}", node=node.name, op=str(node.target),
                             module=module_of(node) or None, source=source, remedy=REMEDY)


def users_line(error: Exception) -> str | None:
    """The innermost line that raised `error` and is neither torch's nor of this package."""
    ours = os.path.join(os.path.dirname(__file__), "")
    user = next((x for x in reversed(traceback.extract_tb(error.__traceback__))
                 if f"{os.sep}torch{os.sep}" not in x.filename and not x.filename.startswith(ours)), None)
    return f"{os.path.basename(user.filename)}:{user.lineno} in {user.name}: {user.line}" if user else None


def collective_error(error: Exception) -> UsageError | None:
    """What to say where torch.distributed was given tensors of a trace, which its bindings do not take; None of any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    is_refused = isinstance(error, TypeError) and "incompatible function arguments" in str(error)
    is_async = isinstance(error, AssertionError) and "async_op" in str(error)
    library = "distributed_c10d.py" if is_refused else "_functional_collectives.py" if is_async else None
    if not frames or os.path.basename(frames[-1].filename) != library:
        return None
    source = users_line(error)
    if is_async:
        return UsageError(f"a collective with async_op=True cannot be traced{f', at {source}' if source else ''}",
                          source=source, remedy=ASYNC_REMEDY)
    call = next((x.name for x in reversed(frames) if os.path.basename(x.filename) == "distributed_c10d.py"
                 and x.name != "wrapper"), "a collective")
    return UsageError(f"dist.{call} cannot be traced ({type(error).__name__}){f' at {source}' if source else ''}",
                      source=source, remedy=REMEDY)
