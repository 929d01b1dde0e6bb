"""The JSON form "fx-dump-1": to and from File messages."""
from __future__ import annotations

import json
import math

from .errors import GraphFileError
from .expressions import ExpressionError, evaluate
from .schema import FORMAT_VERSION
from .values import NONE, fits, get_meta, integer, is_number, put_meta, real, real_of


OPS = {"call_function": "CALL", "placeholder": "PLACEHOLDER", "get_attr": "GET_ATTR",
        "output": "OUTPUT"}
OP_OF_KIND = {kind: op for op, kind in OPS.items()}
INPUT_FIELDS = ("name", "role", "fqn", "which")
OUTPUT_FIELDS = ("role", "fqn")
_DUMP_KEYS = {
    "": {"format", "meta", "process_groups", "inputs", "outputs", "symbols", "graphs"},
    "node": {"name", "op", "target", "args", "kwargs", "meta"},
}


def _brief(x, limit: int = 80) -> str:
    text = json.dumps(x, default=str)
    return text if len(text) <= limit else text[:limit - 3] + "..."


class _Malformed(GraphFileError):
    """A part of the dump has an unknown form; `DumpReader` adds where."""


def _need(obj, key: str, kind, what: str):
    """obj[key], which must exist and be of the given Python type(s)."""
    if not isinstance(obj, dict):
        raise _Malformed(f"{what} is {_brief(obj)}, not an object")
    if key not in obj:
        raise _Malformed(f'{what} has no "{key}"')
    if not isinstance(obj[key], kind):
        raise _Malformed(f'{what} has "{key}": {_brief(obj[key])}, of the wrong type')
    return obj[key]


def _need_texts(obj: dict, key: str, what: str) -> list[str]:
    """obj[key], which must exist and be a list of strings."""
    texts = _need(obj, key, list, what)
    if not all(isinstance(text, str) for text in texts):
        raise _Malformed(f'{what} has "{key}": {_brief(texts)}, not all of them strings')
    return texts


def _only(obj, keys, what: str) -> None:
    """`obj` must be an object with no other keys: what is not understood is not dropped."""
    if not isinstance(obj, dict):
        raise _Malformed(f"{what} is {_brief(obj)}, not an object")
    for key in obj:
        if key not in keys:
            raise _Malformed(f'{what} has the unknown key "{key}"')


class DumpReader:
    """Turns the JSON of a dump into a File message."""

    def __init__(self):
        self.types: dict[str, tuple] = {}  # JSON text of a value -> its Type

    # Arguments and plain data.
    def argument(self, x) -> tuple:
        """The Value of an argument."""
        if type(x) is dict:
            return self.argument_object(x)
        return self.leaf(x, self.argument)

    @staticmethod
    def leaf(x, item) -> tuple:
        """The Value of anything but an object; `item` converts the items of a list."""
        kind = type(x)
        if kind is int:
            return integer(x)
        if kind is str:
            return "text", x
        if x is None:
            return NONE
        if kind is bool:
            return "boolean", x
        if kind is float:
            return real(x)
        return "list", [item(y) for y in x]

    def argument_object(self, x: dict) -> tuple:
        names = {"n": "node", "dtype": "dtype", "device": "device", "layout": "layout",
                 "mf": "memory_format", "graph": "graph", "pg": "process_group",
                 "op": "operator"}
        if len(x) == 1:
            key, y = next(iter(x.items()))
            if key in names and isinstance(y, str):
                return names[key], y
            if key in ("t", "set") and isinstance(y, list) or \
                    key == "slice" and isinstance(y, list) and len(y) == 3:
                return "tuple" if key == "t" else key, [self.argument(part) for part in y]
            if key == "complex" and isinstance(y, list) and len(y) == 2:
                return key, [self.float(part) for part in y]
            if key == "dict" and _marked_form(x):
                return key, [self.argument(part) for pair in y for part in pair]
            if key == "ellipsis" and y is True:
                return key, True
            if key == "f":
                return self.float(x)
            if key == "mesh":
                return self.mesh(y)
            if key == "tensor" and isinstance(y, dict):
                return self.tensor(y, None)
        if "sym" in x:
            _only(x, ("sym", "hint"), "a symbolic argument")
            return "symbolic", _need(x, "sym", str, "a symbolic argument")
        if _marked_form(x) == "repr":
            return "opaque", [("text", x["repr"]), ("text", x["cls"])]
        if set(x) == {"namedtuple", "fields"} and isinstance(x["namedtuple"], str) \
                and isinstance(x["fields"], dict):
            return "named_tuple", [("text", x["namedtuple"]),
                                   *(part for name, y in x["fields"].items()
                                     for part in (("text", name), self.argument(y)))]
        raise _Malformed(f"unknown form of argument {_brief(x)}")

    @staticmethod
    def float(x) -> tuple:
        if type(x) in (int, float):
            return real(float(x))
        if isinstance(x, dict) and _marked_form(x) == "f":
            return real(float(x["f"]))
        raise _Malformed(f"unknown form of number {_brief(x)}")

    def mesh(self, x) -> tuple:
        _need(x, "shape", list, "a mesh")
        _only(x, ("axes", "shape", "ranks", "device_type"), "a mesh")
        return "mesh", [self.plain(x.get(k)) for k in ("axes", "shape", "ranks", "device_type")]

    def tensor(self, x: dict, path: str | None) -> tuple:
        """The Value of a constant tensor, whose values may be given."""
        facts = {k: y for k, y in x.items() if k not in ("attr", "values")}
        return "tensor", [NONE if path is None else ("text", path), ("type_ref", self.type(facts)),
                          self.plain(x.get("values"))]

    def plain(self, x) -> tuple:
        """The Value of plain data, where an object is a dict but for a few marked forms."""
        if type(x) is not dict:
            return self.leaf(x, self.plain)
        marked = _marked_form(x)
        if marked == "t":
            return "tuple", [self.plain(y) for y in x["t"]]
        if marked == "set":
            return "set", [self.plain(y) for y in x["set"]]
        if marked == "dict":
            return "dict", [self.plain(y) for pair in x["dict"] for y in pair]
        if marked:
            return self.argument_object(x)
        return "dict", [part for k, y in x.items() for part in (("text", k), self.plain(y))]

    # Values.
    def type(self, x) -> tuple:
        """The Type of a recorded value."""
        key = json.dumps(x)
        found = self.types.get(key)
        if found is None:
            found = self.types[key] = self.make_type(x)
        return found

    def make_type(self, x) -> tuple:
        if isinstance(x, list):
            return "list", [self.type(y) for y in x]
        if isinstance(x, dict):
            if set(x) == {"t"} and isinstance(x["t"], list):
                return "tuple", [self.type(y) for y in x["t"]]
            if "shape" in x:
                return "tensor", self.tensor_type(x)
            if "symtype" in x:
                _only(x, ("sym", "hint", "symtype"), "a symbolic value")
                return "scalar", {"expression": _need(x, "sym", str, "a symbolic value"),
                                  "py_type": _need(x, "symtype", str, "a symbolic value")}
        return "value", self.argument(x)

    def tensor_type(self, x: dict) -> dict:
        what = "a tensor value"
        _only(x, ("shape", "stride", "dtype", "device", "storage_offset", "requires_grad", "layout",
                  "cls"), what)
        out = {"dtype": _need(x, "dtype", str, what),
               "sizes": [self.extent(e) for e in _need(x, "shape", list, what)],
               "offset": self.extent(x.get("storage_offset", 0)),
               "device": _need(x, "device", str, what),
               "requires_grad": _need(x, "requires_grad", bool, what)}
        if "layout" in x:
            out["layout"] = _need(x, "layout", str, what)
        else:
            out["strides"] = [self.extent(e) for e in _need(x, "stride", list, what)]
        if "cls" in x:
            out["subclass"] = _need(x, "cls", str, what)
        return out

    @staticmethod
    def extent(x) -> int | str:
        if type(x) is int:
            return x if fits(x) else str(x)
        return _need(x, "sym", str, "an extent")

    # Nodes.
    def node(self, x: dict) -> dict:
        _only(x, (*_DUMP_KEYS["node"], "attr", "type"), "the node")
        op = _need(x, "op", str, "the node")
        if op not in OPS:
            raise _Malformed(f'op "{op}" has no place in the file; only {", ".join(OPS)} have')
        out = {"name": x["name"], "kind": OPS[op],
               "target": _need(x, "target", str, "the node"),
               "args": [self.argument(a) for a in _need(x, "args", list, "the node")],
               "kwargs": [{"name": k, "value": self.argument(a)}
                          for k, a in _need(x, "kwargs", dict, "the node").items()]}
        if "type" in x:
            out["py_type"] = _need(x, "type", str, "the node")
        if "attr" in x:
            out["attr"] = self.attribute(x["attr"])
        for key, y in _need(x, "meta", dict, "the node").items():
            self.meta(out, key, y)
        return out

    def attribute(self, x) -> tuple:
        if isinstance(x, dict) and "attr" in x:
            return self.tensor(x, _need(x, "attr", str, "the attribute"))
        return self.argument(x)

    def meta(self, node: dict, key: str, x) -> None:
        if key == "val":
            node["type"] = self.type(x)
        elif key == "example_value":
            node["example_type"] = self.type(x)
        elif key == "unbacked_bindings" and x and isinstance(x, dict) and all(
                isinstance(path, list) and all(isinstance(step, dict) for step in path)
                for path in x.values()):
            node["bindings"] = [{"symbol": symbol, "path": [self.plain(step) for step in path]}
                                for symbol, path in x.items()]
        elif key == "torchtitan_chunk_symbol_hints" and x and isinstance(x, dict) and all(
                type(hint) is int and fits(hint) for hint in x.values()):
            node["chunk_hints"] = [{"symbol": symbol, "value": hint}
                                   for symbol, hint in x.items()]
        else:
            put_meta(node, key, self.plain(x))

    # Tables.
    @staticmethod
    def roles(entries, what: str, typed: tuple, plain) -> list[dict]:
        """Inputs or outputs: the `typed` keys have fields, the others go to `more`.

        `plain` makes the Value of plain data.
        """
        out = []
        for entry in entries:
            _need({"entry": entry}, "entry", dict, what)
            message: dict = {}
            for key, x in entry.items():
                if key in typed and isinstance(x, str):
                    message[key] = x
                else:
                    message.setdefault("more", []).append({"name": key, "value": plain(x)})
            out.append(message)
        return out

    @staticmethod
    def process_group(x: dict) -> dict:
        what = "a process group"
        _only(x, ("name", "ranks", "desc", "axes", "priority", "split_from", "backend"), what)
        out = {"name": _need(x, "name", str, what), "ranks": _need(x, "ranks", list, what),
               "description": _need(x, "desc", (str, type(None)), what)}
        if not all(type(rank) is int and 0 <= rank < 1 << 32 for rank in out["ranks"]):
            raise _Malformed(f'{what} has "ranks": {_brief(out["ranks"])}, not all of them ranks')
        for key in ("priority", "split_from", "backend"):
            if key in x:
                out[key] = _need(x, key, str, what)
        if "axes" in x:
            out["axes"] = _need_texts(x, "axes", what)
            out["has_axes"] = True
        return out

    @staticmethod
    def symbol(name: str, x: dict) -> dict:
        what = f'symbol "{name}"'
        out: dict = {"name": name}
        _only(x, ("range", "hint", "size_like", "unbacked", "deferred_asserts", "replaced_by"),
              what)
        if "range" in x:
            bounds = _need(x, "range", list, what)
            if len(bounds) != 2 or not all(isinstance(b, str) for b in bounds):
                raise _Malformed(f'{what} has "range": {_brief(bounds)}, not two expressions')
            out["lower"], out["upper"] = bounds
        if "hint" in x:
            out["hint"] = _need(x, "hint", int, what)
            if not fits(x["hint"]):
                raise _Malformed(f'{what} has "hint": {x["hint"]}, beyond 64 bits')
        if "unbacked" in x:
            out["unbacked"] = _need(x, "unbacked", bool, what)
        if "size_like" in x:
            out["size_like"] = _need(x, "size_like", bool, what)
        if "deferred_asserts" in x:
            out["asserts"] = _need_texts(x, "deferred_asserts", what)
            out["has_asserts"] = True
        if "replaced_by" in x:
            out["replaced_by"] = _need(x, "replaced_by", str, what)
        return out

    def file(self, dump) -> dict:
        what = "the dump"
        if not isinstance(dump, dict) or dump.get("format") != "fx-dump-1":
            raise _Malformed('is not an fx-dump-1 file (its "format" says'
                             f" {_brief(dump.get('format') if isinstance(dump, dict) else None)})")
        _only(dump, (*_DUMP_KEYS[""], "meta_keys_seen"), what)
        graphs = []
        info = ("dict", [part for k, y in _need(dump, "meta", dict, what).items()
                         for part in (("text", k), self.plain(y))])
        for name, graph in _need(dump, "graphs", dict, what).items():
            where = f'graph "{name}"'
            nodes = []
            for i, x in enumerate(_need(graph, "nodes", list, where)):
                node_name = _need(x, "name", str, f"{where}: node {i}")
                try:
                    nodes.append(self.node(x))
                except GraphFileError as error:
                    raise _Malformed(f'{where}, node "{node_name}": {error}') from None
            graphs.append({"name": name or None, "nodes": nodes})
        if not graphs or graphs[0]["name"] is not None:
            raise _Malformed('the first graph is not the step, which has the name ""')
        return {
            "version": {"format": FORMAT_VERSION, "min_reader": FORMAT_VERSION,
                        "producer": "fx-dump-1"},
            "info": info,
            "process_groups": [self.process_group(x)
                               for x in _need(dump, "process_groups", list, what)],
            "symbols": [self.symbol(name, x)
                        for name, x in _need(dump, "symbols", dict, what).items()],
            "inputs": self.roles(_need(dump, "inputs", list, what), "an input",
                                 INPUT_FIELDS, self.plain),
            "outputs": self.roles(_need(dump, "outputs", list, what), "an output",
                                  OUTPUT_FIELDS, self.plain),
            "graphs": graphs,
        }


def _marked_form(x: dict) -> str | None:
    """Which marked form of plain data an object is, if any (the key that marks it)."""
    if len(x) == 1:
        key, y = next(iter(x.items()))
        if key in ("t", "set") and isinstance(y, list) or \
                key == "n" and isinstance(y, str) or \
                key == "f" and isinstance(y, str) and y in ("inf", "-inf", "nan") or \
                key == "dict" and isinstance(y, list) and all(
                    isinstance(pair, list) and len(pair) == 2 for pair in y):
            return key
    elif len(x) == 2 and isinstance(x.get("repr"), str) and isinstance(x.get("cls"), str):
        return "repr"
    return None


def file_from_dump(dump) -> dict:
    """The File message of a dump's JSON; GraphFileError if it is not an fx-dump-1."""
    try:
        return DumpReader().file(dump)
    except _Malformed as error:
        raise GraphFileError(f"{error}; make the dump again") from None


class _DumpWriter:
    """Turns a File message into the JSON of a dump."""

    def __init__(self, message: dict):
        self.message = message
        self.hints = {s["name"]: s["hint"] for s in message.get("symbols", ()) if "hint" in s}
        self.expressions: dict[str, dict] = {}
        self.types: dict[int, object] = {}

    def symbolic(self, text: str) -> dict:
        """{"sym", "hint"}; the hint is that of the expression, if all its symbols have one."""
        found = self.expressions.get(text)
        if found is None:
            found = {"sym": text}
            try:
                hint = evaluate(text, self.hints)
            except ExpressionError:
                hint = None
            if hint is not None:
                found["hint"] = hint
            self.expressions[text] = found
        return found

    def argument(self, value: tuple):
        """The JSON of a Value in an argument."""
        kind, x = value
        if kind == "dict":
            return {"dict": [[self.argument(k), self.argument(v)] for k, v in zip(x[::2], x[1::2])]}
        return self.common(value, self.argument)

    def plain(self, value: tuple):
        """The JSON of a Value in plain data."""
        kind, x = value
        if kind != "dict":
            return self.common(value, self.plain)
        pairs = [(k, self.plain(v)) for k, v in zip(x[::2], x[1::2])]
        out = {k[1]: v for k, v in pairs if k[0] == "text"}
        if len(out) < len(pairs) or _marked_form(out):
            return {"dict": [[self.plain(k), v] for k, v in pairs]}
        return out

    def common(self, value: tuple, item):
        """The JSON of any Value but a dict; `item` converts contained Values."""
        kind, x = value
        if kind in ("integer", "text", "boolean"):
            return x
        if kind == "node":
            return {"n": x}
        if kind == "none":
            return None
        if kind == "list":
            return [item(y) for y in x]
        if kind == "tuple":
            return {"t": [item(y) for y in x]}
        if kind in ("real", "nan"):
            return self.float(real_of(value))
        if kind == "symbolic":
            return self.symbolic(x)
        names = {"dtype": "dtype", "device": "device", "layout": "layout", "graph": "graph",
                 "memory_format": "mf", "process_group": "pg", "operator": "op",
                 "ellipsis": "ellipsis"}
        if kind in names:
            return {names[kind]: x}
        if kind in ("slice", "set"):
            return {kind: [item(y) for y in x]}
        if kind == "complex":
            return {"complex": [self.float(real_of(y)) for y in x]}
        if kind == "opaque":
            text, name = x[0][1], x[1][1]
            return int(text) if name == "int" and is_number(text) else {"repr": text, "cls": name}
        if kind == "named_tuple":
            return {"namedtuple": x[0][1],
                    "fields": {k[1]: item(v) for k, v in zip(x[1::2], x[2::2])}}
        if kind == "mesh":
            facts = dict(zip(("axes", "shape", "ranks", "device_type"), map(self.plain, x)))
            return {"mesh": {k: v for k, v in facts.items() if v is not None}}
        if kind == "tensor":
            return {"tensor": self.tensor(x)}
        return self.type(x)

    @staticmethod
    def float(x: float):
        if math.isinf(x) or math.isnan(x):
            return {"f": "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"}
        return x

    def tensor(self, parts: list) -> dict:
        out = dict(self.type(parts[1][1]))
        if parts[2] != NONE:
            out["values"] = self.numbers(parts[2])
        return out

    def numbers(self, value: tuple):
        """The values of a tensor; infinities and NaN are written as JSON numbers here."""
        kind, x = value
        if kind == "list":
            return [self.numbers(y) for y in x]
        return real_of(value) if kind in ("real", "nan") else self.plain(value)

    def type(self, kind):
        found = self.types.get(id(kind))
        if found is None:
            found = self.types[id(kind)] = self.make_type(kind)
        return found

    def make_type(self, kind):
        if kind is None:
            return None
        name, x = kind
        if name == "tensor":
            return self.tensor_type(x)
        if name == "scalar":
            return {**self.symbolic(x["expression"]), "symtype": x["py_type"]}
        if name == "tuple":
            return {"t": [self.type(y) for y in x]}
        if name == "list":
            return [self.type(y) for y in x]
        return self.argument(x)

    def tensor_type(self, x: dict) -> dict:
        out = {"shape": [self.extent(e) for e in x.get("sizes", ())], "dtype": x["dtype"],
               "device": x["device"], "requires_grad": x.get("requires_grad", False)}
        if "layout" in x:
            out["layout"] = x["layout"]
        else:
            out["stride"] = [self.extent(e) for e in x.get("strides", ())]
        if x.get("offset", 0) != 0:
            out["storage_offset"] = self.extent(x["offset"])
        if "subclass" in x:
            out["cls"] = x["subclass"]
        return out

    def extent(self, e: int | str):
        if isinstance(e, int):
            return e
        return int(e) if is_number(e) else self.symbolic(e)

    def node(self, x: dict) -> dict:
        out = {"name": x["name"], "op": OP_OF_KIND[x.get("kind", "CALL")], "target": x["target"],
               "args": [self.argument(a) for a in x.get("args", ())],
               "kwargs": {k["name"]: self.argument(k["value"]) for k in x.get("kwargs", ())}}
        if "py_type" in x:
            out["type"] = x["py_type"]
        if "attr" in x:
            kind, parts = x["attr"]
            out["attr"] = {"attr": parts[0][1], **self.tensor(parts)} \
                if kind == "tensor" and parts[0] != NONE else self.argument(x["attr"])
        meta = out["meta"] = {}
        if "type" in x:
            meta["val"] = self.type(x["type"])
        if "example_type" in x:
            meta["example_value"] = self.type(x["example_type"])
        for key, value in get_meta(x).items():
            meta[key] = self.plain(value)
        if "bindings" in x:
            meta["unbacked_bindings"] = {
                b["symbol"]: [self.plain(step) for step in b.get("path", ())]
                for b in x["bindings"]}
        if "chunk_hints" in x:
            meta["torchtitan_chunk_symbol_hints"] = {h["symbol"]: h.get("value", 0)
                                                     for h in x["chunk_hints"]}
        return out

    def role(self, x: dict) -> dict:
        out = {k: x[k] for k in ("name", "role", "fqn", "which") if k in x}
        return out | {k["name"]: self.plain(k["value"]) for k in x.get("more", ())}

    @staticmethod
    def process_group(x: dict) -> dict:
        out = {"name": x["name"], "ranks": x.get("ranks", []), "desc": x.get("description")}
        if x.get("has_axes"):
            out["axes"] = x.get("axes", [])
        return out | {key: x[key] for key in ("priority", "split_from", "backend") if key in x}

    @staticmethod
    def symbol(x: dict) -> dict:
        out: dict = {}
        if "lower" in x:
            out["range"] = [x["lower"], x["upper"]]
        for key in ("hint", "size_like", "unbacked", "replaced_by"):
            if key in x:
                out[key] = x[key]
        if x.get("has_asserts"):
            out["deferred_asserts"] = x.get("asserts", [])
        return out

    def file(self) -> dict:
        message = self.message
        return {
            "format": "fx-dump-1",
            "meta": self.plain(message["info"]) if "info" in message else {},
            "process_groups": [self.process_group(x) for x in message.get("process_groups", ())],
            "inputs": [self.role(x) for x in message.get("inputs", ())],
            "outputs": [self.role(x) for x in message.get("outputs", ())],
            "symbols": {x["name"]: self.symbol(x) for x in message.get("symbols", ())},
            "meta_keys_seen": {},
            "graphs": {g.get("name") or "": {"nodes": [self.node(x) for x in g.get("nodes", ())]}
                       for g in message.get("graphs", ())},
        }


def dump_from_file(message: dict) -> dict:
    """The JSON of a dump with the content of a File message.

    A dump has no place for the pipeline log, provenance and what passes noted of symbols
    (assumptions, parts); they are left out. Raises GraphFileError for a message that lacks
    a field which every graph has, or has a Value of the wrong arity.
    """
    try:
        return _DumpWriter(message).file()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GraphFileError("lacks what a dump must say"
                             f" ({type(error).__name__}: {error}); its writer is faulty") from None
