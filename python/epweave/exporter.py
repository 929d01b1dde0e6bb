"""A live torch.fx.GraphModule as a graph file."""
from __future__ import annotations

import collections
import dataclasses
import enum
import re
import sys
from typing import TYPE_CHECKING

from . import descriptors
from .collector import held
from .collectives import require_functional_collectives
from .dump import INPUT_FIELDS, OPS, OUTPUT_FIELDS, DumpReader
from .errors import GraphFileError
from .exported_program import facts_of, is_exported_program, module_of
from .files import write_file
from .history import MARK, Mark, restore
from .labels import require_graph
from .operators import (MeshPlaceholder, OpaquePlaceholder, attribute_at, imported, name_of_operator,
                        source_of)
from .programs import path_of
from .schema import FORMAT_VERSION
from .values import NONE, integer, is_number, put_meta, real

if TYPE_CHECKING:
    from .kinds import Path, Traced


# Metadata "tensor_meta" repeats "val" in another form. Where the two agree, the file says only
# that, so that the copy cannot go stale when a graph is rewritten.
DERIVED_TENSOR_META = ("opaque", [("text", "of val"), ("text", "TensorMetadata")])


def tensor_meta_of(val):
    """What shape propagation records as "tensor_meta" of a node with the recorded value."""
    import torch
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    return torch.fx.node.map_aggregate(
        val, lambda x: _extract_tensor_metadata(x) if isinstance(x, torch.Tensor) else x)


def _module_of(node) -> str | None:
    custom = node.meta.get("custom")
    return custom.get("module_fqn") if isinstance(custom, dict) else None


def _source_of(node) -> str | None:
    trace = node.meta.get("stack_trace")
    return source_of(trace) if isinstance(trace, str) else None


_UNBACKED = re.compile(r"\bu\d+\b")  # an unbacked symbol, in an expression
_ATOMS = frozenset((int, str, bool, float, type(None)))


def _extent_key(x):
    """A key of an extent: a number, or its expression."""
    return x if type(x) is int else x.node.expr


class _NotPlain(Exception):
    """A metadata entry is no plain data."""


class Exporter:
    """Turns a live GraphModule into a File message."""

    def __init__(self, module):
        import torch
        from torch.distributed import is_available
        self.torch = torch
        self.mesh_class = None
        if is_available():
            from torch.distributed.device_mesh import DeviceMesh
            self.mesh_class = DeviceMesh
        self.env = None
        self.texts: dict = {}  # expression -> its text
        self.operators: dict = {}  # operator -> its Value
        self.types: dict = {}  # facts of a tensor -> its Type
        self.graph_names: dict[int, str] = {}
        self.dropped: dict[tuple[str, str], int] = {}  # (key, class) -> nodes
        self.graphs: list[dict] = []
        self.marks: dict[str, Mark] = {}  # of nodes of the step, by name
        self.add_graph(module, None)

    # Graphs and nodes.
    def add_graph(self, module, name: str | None) -> None:
        """Append the Graph of a GraphModule, then those of the graphs that it refers to."""
        torch = self.torch
        children = []

        def note(path, child) -> str:
            """The name of a graph that this one refers to."""
            if id(child) not in self.graph_names:
                self.graph_names[id(child)] = f"{name}.{path}" if name else path
                children.append(child)
            return self.graph_names[id(child)]
        self.note_graph = note

        for node in module.graph.nodes:
            if node.op == "get_attr":
                child = attribute_at(module, node.target)
                if isinstance(child, torch.fx.GraphModule):
                    note(node.target, child)
        nodes = []
        for node in module.graph.nodes:
            try:
                nodes.append(self.node(module, node))
            except GraphFileError as error:
                raise error.within(f'graph "{name or ""}", node "{node.name}"', node=node.name,
                                   op=str(node.target), source=_source_of(node),
                                   module=_module_of(node)) from None
        if name is None:
            bind_bare_symbols(nodes)
        self.graphs.append({"name": name, "nodes": nodes})
        for child in children:
            self.add_graph(child, self.graph_names[id(child)])

    def node(self, module, node) -> dict:
        if node.op not in OPS:
            raise GraphFileError(f"op {node.op} has no place in the file; trace with make_fx,"
                                 " which leaves calls of operators only")
        target = node.target
        if node.op == "call_function":
            target = name_of_operator(target)
            if target is None:
                raise GraphFileError(f"the target {node.target!r} cannot be found by name;"
                                     " define it at the top of a module or as a custom operator")
        out = {"name": node.name, "kind": OPS[node.op], "target": target,
               "args": [self.argument(a) for a in node.args],
               "kwargs": [{"name": k, "value": self.argument(a)} for k, a in node.kwargs.items()]}
        if node.type is not None:
            out["py_type"] = f"{node.type.__module__}.{node.type.__qualname__}" \
                if isinstance(node.type, type) else str(node.type)
        if node.op == "get_attr":
            out["attr"] = self.attribute(attribute_at(module, node.target), node.target)
        for key, x in node.meta.items():
            if key == MARK:
                self.marks[node.name] = x
                continue
            if key == descriptors.KEY and descriptors.holds_descriptors(x):  # they are the roles of inputs and outputs
                continue
            try:
                self.meta(out, key, x, node.meta.get("val"))
            except _NotPlain as error:
                what = (str(key), str(error))
                self.dropped[what] = self.dropped.get(what, 0) + 1
        if "meta" in out:
            out["meta"].sort(key=lambda entry: entry["name"])
        return out

    def history(self, known: dict) -> dict:
        """The pipeline log, origins and provenance of the file that the module was loaded from (history.py)."""
        history = known.get("history")
        tables = restore(self.graphs[0]["nodes"], self.marks, history)
        if history is not None and not tables:
            print("epweave: none of the module's nodes is one of those that were loaded; the pipeline log and"
                  " provenance are left out", file=sys.stderr)
        return tables

    def attribute(self, x, path: str) -> tuple:
        torch = self.torch
        if isinstance(x, torch.fx.GraphModule):
            return "graph", self.graph_names[id(x)]
        if isinstance(x, torch.Tensor):
            return self.constant(x, path)
        return self.argument(x)

    # Values.
    def leaf(self, x) -> tuple | None:
        """The Value of an atom, or None if `x` is no atom."""
        torch = self.torch
        if x is None:
            return NONE
        if type(x) is bool:
            return "boolean", x
        if type(x) is int:
            return integer(x)
        if type(x) is str:
            return "text", x
        if type(x) is float:
            return real(x)
        if type(x) is complex:
            return "complex", [real(x.real), real(x.imag)]
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return "symbolic", self.expression(x)
        if isinstance(x, torch.dtype):
            return "dtype", str(x)
        if isinstance(x, torch.device):
            return "device", str(x)
        if isinstance(x, torch.layout):
            return "layout", str(x)
        if isinstance(x, torch.memory_format):
            return "memory_format", str(x)
        if x is Ellipsis:
            return "ellipsis", True
        return None

    def operator(self, x) -> tuple:
        """The Value of an operator."""
        found = self.operators.get(x)
        if found is None:
            found = self.operators[x] = ("operator", name_of_operator(x))
        return found

    def tree(self, x, item) -> tuple | None:
        """The Value of a container, its contents converted by `item`; None if it is none."""
        if isinstance(x, self.torch.Size):
            return "named_tuple", [("text", "torch.Size"), *(
                part for i, y in enumerate(x) for part in (("text", str(i)), item(y)))]
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            name = f"{type(x).__module__}.{type(x).__qualname__}"
            return "named_tuple", [("text", name), *(
                part for f, y in zip(x._fields, x) for part in (("text", f), item(y)))]
        if isinstance(x, tuple):
            return "tuple", [item(y) for y in x]
        if isinstance(x, list):
            return "list", [item(y) for y in x]
        if isinstance(x, dict):
            return "dict", [item(part) for pair in x.items() for part in pair]
        if isinstance(x, slice):
            return "slice", [item(x.start), item(x.stop), item(x.step)]
        if type(x) is set:
            return "set", sorted((item(y) for y in x), key=repr)
        return None

    def thing(self, x) -> tuple | None:
        """The Value of a mesh, process group, operator or class; None if it is none."""
        if isinstance(x, MeshPlaceholder):
            return "mesh", [self.plain(y) for y in (x.axes, x.shape, x.ranks, x.device_type)]
        if isinstance(x, OpaquePlaceholder):
            return "opaque", [("text", x.text), ("text", x.class_name)]
        for wrapper in ("real_obj", "wrapped_obj"):
            x = getattr(x, wrapper, x)
        if self.mesh_class and isinstance(x, self.mesh_class):
            facts = (list(x.mesh_dim_names or ()), list(x.shape), x.mesh.tolist(), x.device_type)
            return "mesh", [self.plain(y) for y in facts]
        if isinstance(getattr(x, "group_name", None), str):
            return "process_group", x.group_name
        if isinstance(x, type) and imported(f"{x.__module__}.{x.__qualname__}") is x:
            return "opaque", [("text", f"{x.__module__}.{x.__qualname__}"), ("text", "type")]
        name = name_of_operator(x)
        return None if name is None else ("operator", name)

    def argument(self, x) -> tuple:
        """The Value of an argument; GraphFileError if it has none."""
        torch = self.torch
        if isinstance(x, torch.fx.Node):
            return "node", x.name
        if type(x) in _ATOMS:
            return self.leaf(x)
        if isinstance(x, torch.fx.GraphModule):
            return "graph", self.note_graph(f"arg_graph_{len(self.graph_names)}", x)
        if isinstance(x, torch.Tensor):
            return self.constant(x, None)
        value = self.leaf(x) or self.tree(x, self.argument) or self.thing(x)
        if value is None:
            raise GraphFileError(f"cannot write an argument of class {type(x).__name__}: {x!r}")
        return value

    def plain(self, x) -> tuple:
        """The Value of plain data; _NotPlain, with the class of the culprit, otherwise."""
        torch = self.torch
        if type(x) in _ATOMS:
            return self.leaf(x)
        if type(x) is torch._ops.OpOverload:
            return self.operator(x)
        if isinstance(x, (torch.Tensor, torch.fx.Node, torch.nn.Module)):
            raise _NotPlain(type(x).__name__)
        if isinstance(x, (dict, list)) and type(x) not in (
                dict, list, collections.OrderedDict, torch.fx.immutable_collections.immutable_dict,
                torch.fx.immutable_collections.immutable_list):
            raise _NotPlain(type(x).__name__)
        value = self.leaf(x) or self.tree(x, self.plain) or self.thing(x)
        if value is None:
            raise _NotPlain(type(x).__name__)
        return value

    def constant(self, x, path: str | None) -> tuple:
        """The Value of a constant tensor; a fake one has no values."""
        torch = self.torch
        values = NONE
        if not isinstance(x, torch._subclasses.FakeTensor) and x.device.type != "meta":
            exact = x.detach().cpu()
            if exact.dtype.is_floating_point and exact.dtype.itemsize == 1:
                exact = exact.to(torch.float32)
            values = self.plain(exact.tolist())
        return "tensor", [NONE if path is None else ("text", path), ("type_ref", self.type(x)),
                          values]

    # Types.
    def expression(self, x) -> str:
        self.env = self.env or x.node.shape_env
        expression = x.node.expr
        text = self.texts.get(expression)
        if text is None:
            text = self.texts[expression] = str(expression)
        return text

    def extent(self, x) -> int | str:
        text = str(x) if type(x) is int else self.expression(x)
        return int(text) if is_number(text) else text

    def type(self, x) -> tuple:
        """The Type of a recorded value."""
        torch = self.torch
        if isinstance(x, torch.Tensor):
            facts = self.tensor_facts(x)
            found = self.types.get(facts)
            if found is None:
                found = self.types[facts] = ("tensor", self.tensor_type(x))
            return found
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return "scalar", {"expression": self.expression(x), "py_type": type(x).__name__}
        if isinstance(x, tuple):
            return "tuple", [self.type(y) for y in x]
        if isinstance(x, list):
            return "list", [self.type(y) for y in x]
        return "value", self.recorded(x)

    def recorded(self, x) -> tuple:
        """The Value of a recorded value that has no kind of Type of its own."""
        if isinstance(x, (self.torch.Tensor, tuple, list)):
            return "type_ref", self.type(x)
        value = self.leaf(x) or self.tree(x, self.recorded) or self.thing(x)
        return value or ("opaque", [("text", repr(x)), ("text", type(x).__name__)])

    def tensor_facts(self, x) -> tuple:
        """What the Type of a tensor says, as a key."""
        strides = offset = None
        if x.layout is self.torch.strided:
            strides, offset = tuple(map(_extent_key, x.stride())), _extent_key(x.storage_offset())
        return (type(x), x.dtype, tuple(map(_extent_key, x.shape)), strides, offset, x.device, x.layout,
                x.requires_grad)

    def tensor_type(self, x) -> dict:
        torch = self.torch
        mode = getattr(x, "fake_mode", None)
        if mode is not None:
            self.env = self.env or mode.shape_env
        out = {"dtype": str(x.dtype), "sizes": [self.extent(e) for e in x.shape],
               "device": str(x.device), "requires_grad": x.requires_grad}
        if x.layout == torch.strided:
            out["strides"] = [self.extent(e) for e in x.stride()]
            out["offset"] = self.extent(x.storage_offset())
        else:
            out["layout"] = str(x.layout)
        if type(x).__name__ not in ("FakeTensor", "Tensor"):
            out["subclass"] = type(x).__name__
        return out

    # Metadata.
    def meta(self, node: dict, key, x, val) -> None:
        """Store the entry `key`: `x` of the metadata of a node whose recorded value is `val`."""
        if type(key) is not str:
            raise _NotPlain(type(key).__name__)
        if key == "val":
            node["type"] = self.type(x)
        elif key == "example_value":
            node["example_type"] = self.type(x)
        elif key == "recompute" and isinstance(x, enum.Enum):
            node["recompute"] = x.name
        elif key == "recompute":
            node.setdefault("meta", []).append({"name": key, "value": self.plain(x)})
        elif key == "unbacked_bindings" and x:
            node["bindings"] = [{"symbol": str(symbol), "path": [self.step(s) for s in path]}
                                for symbol, path in x.items()]
        elif key == "torchtitan_chunk_symbol_hints" and x:
            node["chunk_hints"] = [{"symbol": str(s), "value": int(h)} for s, h in x.items()]
        elif key == "stack_trace" and type(x) is str and source_of(x) != x:
            node["source"] = source_of(x)
            node.setdefault("meta", []).append({"name": key, "value": ("text", x)})
        else:
            value = self.plain(x)
            if key == "tensor_meta" and value == self.plain(tensor_meta_of(val)):
                value = DERIVED_TENSOR_META
            put_meta(node, key, value)

    def step(self, x) -> tuple:
        """The Value of one step of a key path: a dict of its kind and its fields."""
        out = [("text", "kind"), ("text", type(x).__name__)]
        for field in dataclasses.fields(x):
            out += [("text", field.name), self.plain(getattr(x, field.name))]
        return "dict", out

    # Tables.
    def symbols(self) -> list[dict]:
        """The symbols of the ShapeEnv found in the recorded values."""
        env = self.env
        if env is None:
            return []
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
        out = {}
        for symbol, bounds in env.var_to_range.items():
            entry = out[str(symbol)] = {"name": str(symbol), "lower": str(bounds.lower),
                                        "upper": str(bounds.upper),
                                        "unbacked": bool(free_unbacked_symbols(symbol)),
                                        "size_like": symbol in env.size_like}
            hint = env.backed_var_to_val.get(symbol, env.var_to_hint_override.get(symbol))
            if hint is not None and int(hint) == hint:
                entry["hint"] = int(hint)
            asserts = env.deferred_runtime_asserts.get(symbol)
            if asserts:
                entry["asserts"] = [str(a.expr) for a in asserts]
                entry["has_asserts"] = True
        for symbol, expression in env.replacements.items():
            out.setdefault(str(symbol), {"name": str(symbol)})["replaced_by"] = str(expression)
        return list(out.values())

    def report_dropped(self) -> None:
        for (key, kind), count in sorted(self.dropped.items()):
            print(f'epweave: metadata "{key}" is not plain data ({kind});'
                  f" left out on {count} node{'s' if count > 1 else ''}", file=sys.stderr)


def bind_bare_symbols(nodes: list[dict]) -> None:
    """Let the first call whose whole value is an unbacked symbol bind it, where nothing else does.

    torch leaves `unbacked_bindings` out at calls that it traces while it ignores fresh symbols (coordinates
    that sharding propagation asks for).
    """
    bound = {entry["symbol"] for node in nodes for entry in node.get("bindings", ())}
    for node in nodes:
        if node["kind"] == "PLACEHOLDER":
            bound.update(_UNBACKED.findall(repr(node.get("type", ""))))
            continue
        kind, value = node.get("type", ("", None))
        if node["kind"] == "CALL" and kind == "scalar" and _UNBACKED.fullmatch(value["expression"]) \
                and value["expression"] not in bound:
            bound.add(value["expression"])
            node["bindings"] = [{"symbol": value["expression"], "path": []}]


def live_process_groups() -> list[dict]:
    """torch.distributed's process groups as `export` takes them; none if not initialised."""
    import torch.distributed as dist
    if not (dist.is_available() and dist.is_initialized()):
        return []
    world = dist.distributed_c10d._world
    out = []
    for group, name in world.pg_names.items():
        entry = {"name": name, "ranks": sorted(world.pg_group_ranks.get(group, {})),
                 "desc": getattr(group, "group_desc", None)}
        if group in world.pg_map and world.pg_map[group][0] != "fake":
            entry["backend"] = world.pg_map[group][0]
        out.append(entry)
    return out


def _added_groups(known: dict, groups: list[dict]) -> list[dict]:
    """The rows of a loaded file's group table that passes added and `groups` lacks: its graph names them."""
    names = {row["name"] for row in groups}
    return [row for row in known.get("process_groups", ()) if "split_from" in row and row["name"] not in names]


def _same_count(roles: list[dict], parts, what: str) -> None:
    if len(roles) != len(parts):
        raise GraphFileError(f"{len(roles)} {what} are described, but the graph has {len(parts)};"
                             " describe each in order")


# Where `load` keeps, in GraphModule.meta, what a file says of the graph as a whole.
FILE_FACTS = "epweave"
# What a file says of a symbol that a ShapeEnv has no place for.
NOTED_OF_SYMBOLS = ("assumptions", "part_of")


def export(graph_module: Traced, path: Path, *, inputs: list[dict] | None = None,
           outputs: list[dict] | None = None, process_groups: list[dict] | None = None,
           symbols: dict[str, dict] | None = None, info: dict | None = None) -> None:
    """Write a torch.fx.GraphModule of operator calls, or a torch.export.ExportedProgram, as a graph file.

    `inputs` has one dictionary per placeholder, `outputs` one per returned value, in order:
    "role" (parameter, buffer, user; loss, grad, mutation, other), "fqn", "which", and any
    other plain data. `process_groups` has one per group: "name", "ranks", "desc" and maybe
    "axes", "priority", "split_from", "backend"; those that passes added to the file that the
    module was loaded from stay. `symbols` maps a symbol's name to "range"
    (two expressions), "hint", "size_like", "unbacked", "deferred_asserts", "replaced_by".
    `info` is a dictionary of plain data.

    What is not given comes from the program's signature, the file that the module was loaded from, AOTAutograd's
    descriptors (`aot_export_joint_with_descriptors`), else from torch.distributed's groups and the ShapeEnv of the
    recorded values; inputs are then user inputs and outputs of role "other".

    Metadata that is not plain data is left out and named on stderr. Raises GraphFileError
    for anything else that the file cannot hold.
    """
    path = path_of(path)
    if is_exported_program(graph_module):
        facts = facts_of(graph_module)
        inputs = facts["inputs"] if inputs is None else inputs
        outputs = facts["outputs"] if outputs is None else outputs
        graph_module = module_of(graph_module)
    require_graph(graph_module)
    require_functional_collectives(graph_module)
    if FILE_FACTS not in graph_module.meta and (found := descriptors.roles_of(graph_module.graph)):
        inputs = found[0] if inputs is None else inputs
        outputs = found[1] if outputs is None else outputs
    with held():
        write_file(_message_of(graph_module, path, inputs, outputs, process_groups, symbols, info), path)


def _message_of(graph_module, path, inputs, outputs, process_groups, symbols, info) -> dict:
    """The File message that `export` writes."""
    import torch

    exporter = Exporter(graph_module)
    reader = DumpReader()
    known = graph_module.meta.get(FILE_FACTS, {})
    nodes = exporter.graphs[0]["nodes"]
    names = [n["name"] for n in nodes if n["kind"] == "PLACEHOLDER"]
    returned = next((n["args"][0] for n in nodes if n["kind"] == "OUTPUT" and n["args"]), NONE)
    count = len(returned[1]) if returned[0] in ("list", "tuple") else 1
    message: dict = {
        "version": {"format": FORMAT_VERSION, "min_reader": FORMAT_VERSION,
                    "producer": f"epweave_fx with torch {torch.__version__}"},
        "inputs": known.get("inputs") or [{"name": name, "role": "user", "which": name}
                                          for name in names],
        "outputs": known.get("outputs") or [{"role": "other"} for _ in range(count)],
        "graphs": exporter.graphs}
    if "info" in known:
        message["info"] = known["info"]
    try:
        if info is not None:
            message["info"] = exporter.plain(info)
        if inputs is not None:
            _same_count(inputs, names, "inputs")
            message["inputs"] = reader.roles(
                [{"name": name, **role} for role, name in zip(inputs, names)], "an input",
                INPUT_FIELDS, exporter.plain)
        if outputs is not None:
            _same_count(outputs, range(count), "outputs")
            message["outputs"] = reader.roles(outputs, "an output", OUTPUT_FIELDS, exporter.plain)
    except _NotPlain as error:
        raise GraphFileError(f"{path}: a {error} in info, inputs or outputs is not plain data;"
                             " give numbers, strings, lists and dictionaries") from None
    if process_groups is None and known.get("process_groups"):
        message["process_groups"] = known["process_groups"]
    else:
        groups = live_process_groups() if process_groups is None else process_groups
        message["process_groups"] = [reader.process_group(x) for x in groups]
        message["process_groups"] += _added_groups(known, message["process_groups"])
    if symbols is not None:
        message["symbols"] = [reader.symbol(name, x) for name, x in symbols.items()]
    else:
        message["symbols"] = [{**entry, **known.get("symbols", {}).get(entry["name"], {})}
                              for entry in exporter.symbols()]
    message.update(exporter.history(known))
    exporter.report_dropped()
    return message
