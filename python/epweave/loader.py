"""A graph file as a live torch.fx.GraphModule."""
from __future__ import annotations

import ast
import collections
import os
import re
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .collector import held
from .dump import OP_OF_KIND
from .errors import GraphFileError, UsageError
from .exporter import DERIVED_TENSOR_META, FILE_FACTS, NOTED_OF_SYMBOLS, tensor_meta_of
from .files import read_file
from .history import MARK, Mark, history_of
from .meshes import LiveMeshes, own_rank
from .operators import (MeshPlaceholder, OpaquePlaceholder, ProcessGroupPlaceholder, find_operator,
                        imported, record_source)
from .programs import path_of, run
from .values import NONE, get_meta, is_number, real_of

if TYPE_CHECKING:
    from .kinds import DeviceMesh, GraphModule, Path


class Expressions:
    """Parses expressions into sympy, over the symbols of a file."""

    def __init__(self, symbols: list[dict]):
        import sympy
        from torch.utils._sympy import functions, numbers
        self.sympy, self.functions = sympy, functions
        self.constants = {"int_oo": numbers.int_oo, "oo": sympy.oo, "True": sympy.true,
                          "False": sympy.false}
        self.symbols: dict[str, object] = {}
        self.parsed: dict[str, object] = {}
        for entry in symbols:
            self.add_symbol(entry)

    def add_symbol(self, entry: dict) -> None:
        name = entry["name"]
        if name.startswith("z"):  # zf3, zuf3: floats
            self.symbols[name] = self.sympy.Symbol(name, real=True)
        else:
            lower = entry.get("lower", "")
            positive = not entry.get("unbacked") and lower.isdecimal() and int(lower) > 0
            self.symbols[name] = self.sympy.Symbol(name, integer=True, positive=positive or None)

    def __getitem__(self, text: str):
        """The sympy expression of `text`; GraphFileError if it is none."""
        found = self.parsed.get(text)
        if found is None:
            try:
                tree = ast.parse(text.strip(), mode="eval").body
                found = self.build(tree)
                if str(found) != text:
                    with self.sympy.evaluate(False):
                        literal = self.build(tree)
                    found = literal if str(literal) == text else found
            except (SyntaxError, TypeError, KeyError, AttributeError) as error:
                raise GraphFileError(f"cannot read the expression {text!r}: {error}") from None
            self.parsed[text] = found
        return found

    def build(self, e):
        sympy, functions = self.sympy, self.functions
        if isinstance(e, ast.Name):
            if e.id in self.constants:
                return self.constants[e.id]
            if e.id not in self.symbols:
                raise KeyError(f"symbol {e.id} is not in the file's table")
            return self.symbols[e.id]
        if isinstance(e, ast.Constant):
            return sympy.sympify(e.value)
        if isinstance(e, ast.UnaryOp):
            operand = self.build(e.operand)
            return sympy.Not(operand) if isinstance(e.op, ast.Invert) else \
                sympy.Mul(sympy.Integer(-1), operand)
        if isinstance(e, ast.Tuple):
            return tuple(self.build(x) for x in e.elts)
        if isinstance(e, ast.Call):
            arguments = [self.build(a) for a in e.args]
            for home in (functions, sympy):
                if hasattr(home, e.func.id):
                    return getattr(home, e.func.id)(*arguments)
            raise KeyError(f"function {e.func.id} is not known")
        if isinstance(e, ast.Compare):
            a, b = self.build(e.left), self.build(e.comparators[0])
            relations = {ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge}
            return relations[type(e.ops[0])](a, b)
        a, b = self.build(e.left), self.build(e.right)
        operations = {
            ast.Add: lambda: sympy.Add(a, b), ast.Mult: lambda: sympy.Mul(a, b),
            ast.Sub: lambda: sympy.Add(a, sympy.Mul(sympy.Integer(-1), b)),
            ast.FloorDiv: lambda: functions.FloorDiv(a, b), ast.Mod: lambda: functions.Mod(a, b),
            ast.Pow: lambda: sympy.Pow(a, b),
            ast.Div: lambda: sympy.Mul(a, sympy.Pow(b, sympy.Integer(-1))),
            ast.BitAnd: lambda: sympy.And(a, b), ast.BitOr: lambda: sympy.Or(a, b)}
        return operations[type(e.op)]()


class Loader:
    """Turns a File message into a live GraphModule. `live` says what groups and meshes are in this process.

    Each recorded device becomes `device`; without it, each of the type of `rank_device` becomes that.
    """

    def __init__(self, message: dict, device: str | None, live: LiveMeshes | None = None, rank_device: str | None = None):
        import torch
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        self.torch = torch
        self.message, self.live = message, live
        self.device_override, self.rank_device = self.given_device(device), self.given_device(rank_device)
        self.expressions = Expressions(message.get("symbols", []))
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.env)
        self.declare_symbols()
        self.operators: dict[str, object] = {}
        self.devices: dict[str, object] = {}
        self.tensor_makers: dict[int, object] = {}  # id of a Tensor message -> what makes one
        self.graphs: dict[str | None, dict] = {g.get("name"): g for g in message["graphs"]}
        self.modules: dict[str | None, object] = {}

    # The ShapeEnv.
    def declare_symbols(self) -> None:
        """Make the file's symbols known to the ShapeEnv: ranges, hints and their kind."""
        import sympy
        from torch._dynamo.source import ConstantSource
        from torch.utils._sympy.value_ranges import ValueRanges
        env = self.env
        for entry in self.message.get("symbols", ()):
            name = entry["name"]
            symbol = self.expressions.symbols[name]
            env.name_to_symbol[name] = symbol
            if "lower" in entry:
                env.var_to_range[symbol] = ValueRanges(self.expressions[entry["lower"]],
                                                       self.expressions[entry["upper"]])
            if entry.get("size_like"):
                env.size_like.add(symbol)
            unbacked = entry.get("unbacked", name.startswith(("u", "zu")))
            if "hint" in entry:
                hints = env.var_to_hint_override if unbacked else env.backed_var_to_val
                hints[symbol] = entry["hint"] if unbacked else sympy.Integer(entry["hint"])
            if unbacked:
                numbered = re.fullmatch(r"u(\d+)", name)
                if numbered:
                    env.unbacked_symint_counter = max(env.unbacked_symint_counter,
                                                      int(numbered[1]) + 1)
            else:
                env.var_to_sources[symbol] = [ConstantSource(name)]

    def finish_symbols(self) -> None:
        """Give the ShapeEnv exactly the file's facts, undoing what building values added."""
        from torch.fx.experimental.symbolic_shapes import RuntimeAssert
        from torch.utils._traceback import CapturedTraceback
        env = self.env
        env.var_to_range.clear()
        env.deferred_runtime_asserts.clear()
        env.replacements.clear()
        env.num_deferred_runtime_asserts = 0
        self.declare_symbols()
        for entry in self.message.get("symbols", ()):
            symbol = self.expressions.symbols[entry["name"]]
            if "replaced_by" in entry:
                env.replacements[symbol] = self.expressions[entry["replaced_by"]]
            asserts = [RuntimeAssert(self.expressions[text], "", CapturedTraceback.extract())
                       for text in entry.get("asserts", ())]
            if asserts:
                env.deferred_runtime_asserts[symbol] = asserts
                env.num_deferred_runtime_asserts += len(asserts)
        env.pending_fresh_unbacked_symbols.clear()
        env._update_version_counter()

    # Values.
    def symbolic(self, text: str, py_type: str | None = None):
        """A SymInt, SymFloat or SymBool; the kind follows from the expression if not given."""
        from torch.fx.experimental.sym_node import SymNode
        torch = self.torch
        expression = self.expressions[text]
        if py_type is None:
            py_type = "SymBool" if expression.is_Boolean or expression.is_Relational else \
                "SymInt" if expression.is_integer is not False else "SymFloat"
        kinds = {"SymInt": (int, torch.SymInt), "SymFloat": (float, torch.SymFloat),
                 "SymBool": (bool, torch.SymBool)}
        if py_type not in kinds:
            raise GraphFileError(f'has a symbolic scalar of the unknown class "{py_type}"')
        plain, symbolic = kinds[py_type]
        return symbolic(SymNode(expression, self.env, plain, None))

    def extent(self, e: int | str):
        if isinstance(e, int):
            return e
        return int(e) if is_number(e) else self.symbolic(e, "SymInt")

    def torch_constant(self, name: str):
        """The torch object (dtype, layout, memory format) of a name such as "torch.int64"."""
        found = getattr(self.torch, name.removeprefix("torch."), None)
        if found is None:
            raise GraphFileError(f"torch {self.torch.__version__} has no {name}")
        return found

    def given_device(self, name: str | None):
        """The torch.device that the caller names, or None."""
        try:
            return None if name is None else self.torch.device(name)
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"{name!r} is no device: {error}",
                             remedy="give one that torch.device takes: 'cpu', 'cuda:0'") from None

    def device(self, name: str):
        found = self.devices.get(name)
        if found is None:
            found = self.device_override or self.torch.device(name)
            if self.rank_device is not None and found.type == self.rank_device.type:
                found = self.rank_device
            self.devices[name] = found
        return found

    def operator(self, name: str):
        if name not in self.operators:
            self.operators[name] = find_operator(name)
        return self.operators[name]

    def value(self, value: tuple, nodes: dict):
        """The Python object of a Value; `nodes` are the nodes that it may refer to."""
        kind, x = value
        if kind in ("integer", "boolean", "text"):
            return x
        if kind == "node":
            if x not in nodes:
                raise GraphFileError(f'refers to "{x}", which no earlier node of the graph is;'
                                     " `epweave verify` lists all such faults")
            return nodes[x]
        if kind == "none":
            return None
        if kind == "list":
            return [self.value(y, nodes) for y in x]
        if kind == "tuple":
            return tuple(self.value(y, nodes) for y in x)
        if kind == "dict":
            parts = [self.value(y, nodes) for y in x]
            return dict(zip(parts[::2], parts[1::2]))
        if kind == "set":
            return {self.value(y, nodes) for y in x}
        if kind == "slice":
            return slice(*(self.value(y, nodes) for y in x))
        if kind in ("real", "nan"):
            return real_of(value)
        if kind == "complex":
            return complex(*map(real_of, x))
        if kind == "symbolic":
            return self.symbolic(x)
        if kind in ("dtype", "layout", "memory_format"):
            return self.torch_constant(x)
        if kind == "device":
            return self.device(x)
        if kind == "ellipsis":
            return Ellipsis
        if kind == "graph":
            return self.module(x)
        if kind == "mesh":
            mesh = MeshPlaceholder(*(self.value(y, nodes) for y in x))
            return mesh if self.live is None else self.live.mesh(mesh)
        if kind == "process_group":
            return self.process_group(x if self.live is None else self.live.name(x))
        if kind == "operator":
            return self.operator(x)
        if kind == "tensor":
            return self.constant(x)
        if kind == "type_ref":
            return self.recorded(x)
        if kind == "named_tuple":
            return self.named_tuple(x, nodes)
        return self.opaque(x[0][1], x[1][1])

    def named_tuple(self, parts: list, nodes: dict):
        name, fields = parts[0][1], [f[1] for f in parts[1::2]]
        items = [self.value(y, nodes) for y in parts[2::2]]
        if name == "torch.Size":
            return self.torch.Size(items)
        known = imported(name)
        if known is None:
            known = collections.namedtuple(name.rpartition(".")[2], fields)
        return known(*items)

    @staticmethod
    def opaque(text: str, class_name: str):
        if class_name == "int" and is_number(text):
            return int(text)
        if class_name == "type":
            return imported(text) or OpaquePlaceholder(text, class_name)
        return OpaquePlaceholder(text, class_name)

    @staticmethod
    def process_group(name: str):
        import torch.distributed as dist
        if dist.is_available() and dist.is_initialized():
            for group, known in dist.distributed_c10d._world.pg_names.items():
                if known == name:
                    return group
        return ProcessGroupPlaceholder(name)

    def constant(self, parts: list):
        """A constant tensor: real if its values are recorded, else fake."""
        torch = self.torch
        x = parts[1][1][1]
        if parts[2] == NONE:
            return self.fake_tensor(x)
        dtype = self.torch_constant(x["dtype"])
        values = torch.tensor(self.value(parts[2], {}), dtype=dtype)
        try:
            out = torch.empty_strided(x.get("sizes", []), x.get("strides", []), dtype=dtype,
                                      device=self.device(x["device"]))
        except (RuntimeError, AssertionError) as error:
            raise GraphFileError(f'cannot make a constant tensor on {x["device"]} ({error});'
                                 ' load with device="cpu"') from None
        out.copy_(values.reshape(out.shape))
        if x.get("subclass") == "Parameter":
            return torch.nn.Parameter(out, requires_grad=x.get("requires_grad", False))
        return out.requires_grad_(x.get("requires_grad", False))

    def fake_tensor(self, x: dict):
        """A FakeTensor of the recorded dtype, sizes, strides, offset and device, with a storage of its own."""
        make = self.tensor_makers.get(id(x))
        if make is None:
            make = self.tensor_makers[id(x)] = self.tensor_maker(x)
        return make()

    def tensor_maker(self, x: dict):
        """The function () -> FakeTensor of a type.

        For symbolic sizes torch computes contiguity and bytes in sympy whenever a tensor is made from them. That
        is done once here; each tensor is then a shallow copy that gets a storage of the same number of bytes.
        """
        torch = self.torch
        from torch._subclasses import FakeTensor
        layout = x.get("layout", "torch.strided")
        if layout != "torch.strided":
            raise GraphFileError(f"has a recorded value of layout {layout}; only strided ones"
                                 " can be loaded")
        sizes = [self.extent(e) for e in x.get("sizes", ())]
        strides = [self.extent(e) for e in x.get("strides", ())]
        offset = self.extent(x.get("offset", 0))
        dtype, device, mode = self.torch_constant(x["dtype"]), self.device(x["device"]), self.mode
        requires_grad = x.get("requires_grad", False)

        def fake(meta):  # torch 2.11's constructor takes no requires_grad
            tensor = FakeTensor(mode, meta, device)
            return tensor.requires_grad_() if requires_grad else tensor
        if all(type(e) is int for e in (*sizes, *strides, offset)) and not offset:
            def make():
                return fake(torch.empty_strided(sizes, strides, dtype=dtype, device="meta"))
            return make
        pattern = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
        if type(offset) is not int or offset:
            pattern = self.with_offset(pattern, sizes, strides, offset)
        size = pattern.untyped_storage().nbytes()

        def make_alike():
            meta = pattern.data  # with a version counter of its own
            torch._functionalize_unsafe_set(meta, torch.Tensor._make_wrapper_subclass(
                FakeTensor, (0,), dtype=dtype, device="meta", storage_size=size))
            return fake(meta)
        return make_alike

    def with_offset(self, meta, sizes, strides, offset):
        """A view of fresh storage, large enough, that begins `offset` elements into it."""
        span = offset + 1
        for size, stride in zip(sizes, strides):
            span = span + size * stride
        base = self.torch.empty_strided((span,), (1,), dtype=meta.dtype, device="meta")
        return base.as_strided(sizes, strides, offset)

    def recorded(self, kind: tuple):
        """The recorded value (meta "val") of a Type."""
        name, x = kind
        if name == "tensor":
            return self.fake_tensor(x)
        if name == "scalar":
            return self.symbolic(x["expression"], x["py_type"])
        if name == "tuple":
            return tuple(None if y is None else self.recorded(y) for y in x)
        if name == "list":
            return [None if y is None else self.recorded(y) for y in x]
        return self.value(x, {})

    # Graphs.
    def module(self, name: str | None):
        """The GraphModule of the graph called `name`, made once."""
        if name not in self.modules:
            graph = self.graphs.get(name)
            if graph is None:
                raise GraphFileError(f'refers to the graph "{name}", which is not in the file')
            self.modules[name] = None  # a graph that contains itself has no module
            self.modules[name] = self.build_module(graph)
        found = self.modules[name]
        if found is None:
            raise GraphFileError(f'the graph "{name}" contains itself')
        return found

    def build_module(self, message: dict):
        torch = self.torch
        root = torch.nn.Module()
        graph = torch.fx.Graph()
        nodes: dict = {}
        for x in message.get("nodes", ()):
            try:
                nodes[x["name"]] = self.node(graph, root, x, nodes)
            except GraphFileError as error:
                raise error.within(f'graph "{message.get("name") or ""}", node "{x["name"]}"', node=x["name"],
                                   op=x.get("target"), module=x.get("module"),
                                   source=x.get("source")) from None
        return torch.fx.GraphModule(root, graph)

    def node(self, graph, root, x: dict, nodes: dict):
        if x["name"] in nodes:
            raise GraphFileError("the name occurs twice; `epweave verify` lists all such faults")
        kind = x.get("kind", "CALL")
        target = x["target"]
        if kind == "CALL":
            target = self.operator(target)
        elif kind == "GET_ATTR":
            self.set_attribute(root, target, x)
        args = tuple(self.value(a, nodes) for a in x.get("args", ()))
        kwargs = {k["name"]: self.value(k["value"], nodes) for k in x.get("kwargs", ())}
        if self.live is not None and kind == "CALL":
            args, kwargs = self.live.rename(target, args, kwargs)
        node = graph.create_node(
            OP_OF_KIND[kind], target, args, kwargs, name=x["name"],
            type_expr=imported(x["py_type"]) if "py_type" in x else None)
        if node.name != x["name"]:
            node.name = x["name"]
        self.set_meta(node, x)
        return node

    def set_attribute(self, root, target: str, x: dict) -> None:
        *owners, last = target.split(".")
        for part in owners:
            if not hasattr(root, part):
                root.add_module(part, self.torch.nn.Module())
            root = getattr(root, part)
        if "attr" not in x:
            raise GraphFileError("a get_attr node must say what the attribute is")
        value = self.value(x["attr"], {})
        if isinstance(value, self.torch.Tensor) and not isinstance(value, self.torch.nn.Parameter):
            root.register_buffer(last, value)
        else:
            setattr(root, last, value)

    def set_meta(self, node, x: dict) -> None:
        meta = node.meta
        if "type" in x:
            meta["val"] = self.recorded(x["type"])
        if "example_type" in x:
            meta["example_value"] = self.recorded(x["example_type"])
        for key, value in get_meta(x).items():
            meta[key] = self.value(value, {})
        for entry in x.get("meta", ()):
            if entry["name"] == "stack_trace":  # in full; the field has its last frame
                meta["stack_trace"] = trace = self.value(entry["value"], {})
                if "source" in x and type(trace) is str:
                    record_source(trace, x["source"])
            elif entry["value"] == DERIVED_TENSOR_META:
                meta["tensor_meta"] = tensor_meta_of(meta.get("val"))
        if "recompute" in x:
            from torch.utils.checkpoint import CheckpointPolicy
            if x["recompute"] in CheckpointPolicy.__members__:
                meta["recompute"] = CheckpointPolicy[x["recompute"]]
        if "bindings" in x:
            from torch.fx.experimental import symbolic_shapes
            from torch.utils import _pytree

            def step(value):
                fields = self.value(value, {})
                kind = fields.pop("kind")
                home = symbolic_shapes if hasattr(symbolic_shapes, kind) else _pytree
                return getattr(home, kind)(**fields)
            meta["unbacked_bindings"] = {
                self.expressions[b["symbol"]]: tuple(step(s) for s in b.get("path", ()))
                for b in x["bindings"]}
        if "chunk_hints" in x:
            meta["torchtitan_chunk_symbol_hints"] = {
                self.expressions[h["symbol"]]: h.get("value", 0) for h in x["chunk_hints"]}

    def load(self):
        module = self.module(None)
        self.finish_symbols()
        module.meta[FILE_FACTS] = {
            key: self.message[key]
            for key in ("info", "inputs", "outputs", "process_groups")
            if key in self.message}
        noted = {entry["name"]: {key: entry[key] for key in NOTED_OF_SYMBOLS if key in entry}
                 for entry in self.message.get("symbols", ())}
        module.meta[FILE_FACTS]["symbols"] = {name: facts for name, facts in noted.items() if facts}
        if self.live is not None:
            module.meta[FILE_FACTS]["process_groups"] = self.live.rows()
        history = history_of(self.message)
        if history is not None:
            module.meta[FILE_FACTS]["history"] = history
            for node in module.graph.nodes:
                node.meta[MARK] = Mark(node.name, history)
        return module


def load(path: Path, *, rank: int | None = None, meshes: Sequence[DeviceMesh] | None = None,
         device: str | None = None, rank_device: str | None = None) -> GraphModule:
    """The torch.fx.GraphModule in a graph file.

    Recorded values are FakeTensors and symbolic scalars of one FakeTensorMode, whose
    ShapeEnv has the file's symbols; each recorded tensor has a storage of its own. Constant
    tensors with recorded values are real. With `device`, every device argument and recorded
    device becomes that one, so that a graph traced for CUDA runs on the CPU. With `rank_device`
    ("cuda:3") those of its type do, as a rank has one: cuda:0 and cuda become cuda:3, cpu stays.

    A graph for all ranks becomes that of `rank` (`epweave specialize`). `meshes`, a list of
    this process's DeviceMeshes, says what its groups are called here: each group of the file
    becomes the one with the same members, and constant meshes become these; `rank` is then
    this process's by default. A group that is in use and in none of them is an error.

    Otherwise device meshes become MeshPlaceholder objects, and process groups that torch.distributed
    does not know ProcessGroupPlaceholder objects; both export as what they stand for. The
    pipeline log and provenance go with the module and its nodes (in their `meta`) and are exported
    again, node by node, also behind passes of others (history.py).

    Raises GraphFileError, also where an operator is not registered in this process, and
    DeclinedError where the graph is another rank's or holds numbers of one rank.
    """
    if meshes is not None:
        here = own_rank()
        if rank not in (None, here):
            raise UsageError(f"the meshes are rank {here}'s, and the graph of rank {rank} is asked for",
                             remedy="give this process's rank, or none")
        rank = here
    path = path_of(path)
    with held():
        message = read_file(path) if rank is None else _read_rank(path, rank)
        try:
            live = None if meshes is None else LiveMeshes(message.get("process_groups", ()), meshes)
            return Loader(message, device, live, rank_device).load()
        except GraphFileError as error:
            raise error.within(path) from None
        except (IndexError, KeyError) as error:
            raise GraphFileError(f"{path}: lacks what a graph must say"
                                 f" ({type(error).__name__}: {error}); its writer is faulty") from None


def _read_rank(path: str, rank: int) -> dict:
    """The File message of a rank's graph."""
    with tempfile.TemporaryDirectory(prefix="epweave-") as folder:
        made = os.path.join(folder, "rank.epw")
        run("epweave", "specialize", path, "--rank", str(rank), "-o", made, "-q")
        return read_file(made)
