"""How a traced step is called, as plain data: layouts of wrapped tensors, and pytree specifications with mask closures.

A closure is stored as what it is called in its module, with a digest of its code; what it closes over are inputs of the
step already. It is found again by that name, and refused where the code there is another.
"""
from __future__ import annotations

import hashlib
import importlib
import inspect
import types

from .errors import GraphFileError
from .operators import attribute_at, imported
from .subclasses import Layout

PLACEMENTS = {"Shard": ("dim",), "_StridedShard": ("dim", "split_factor"), "Replicate": (), "Partial": ("reduce_op",)}
_ATOMS = (type(None), bool, int, float, str)
_LOCALS = ".<locals>."


def _class_name(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if imported(name) is not kind:
        raise GraphFileError(f"the class {name} cannot be found by its name; define it at the top of a module")
    return name


def _class_named(name: str, base: type) -> type:
    found = imported(name)
    if not isinstance(found, type) or not issubclass(found, base):
        raise GraphFileError(f"there is no class {name} here that is a {base.__name__}; install what defines it")
    return found


# ------------------------------------------------------------------------------------- functions
def code_digest(code: types.CodeType) -> str:
    """A hash of what a function does: not of its file and lines."""
    def constant(x) -> str:
        if isinstance(x, types.CodeType):
            return code_digest(x)
        if isinstance(x, (tuple, frozenset)):
            items = [constant(y) for y in x]
            return f"{type(x).__name__}{items if isinstance(x, tuple) else sorted(items)}"
        return f"{type(x).__name__} {x!r}"

    parts = [code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount,
             code.co_kwonlyargcount, code.co_flags, [constant(x) for x in code.co_consts]]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _codes_named(module: str, qualname: str) -> list[types.CodeType]:
    """The codes that `qualname` may mean: of functions within functions there can be several."""
    outer, *inner = qualname.split(_LOCALS)
    try:
        function = inspect.unwrap(attribute_at(importlib.import_module(module), outer))
    except (ImportError, AttributeError):
        return []
    codes = [function.__code__] if inspect.isfunction(function) else []
    for name in inner:
        codes = [x for code in codes for x in code.co_consts if isinstance(x, types.CodeType) and x.co_name == name]
    return codes


def _encode_code(code: types.CodeType, module: str, qualname: str) -> dict:
    digest = code_digest(code)
    if digest not in map(code_digest, _codes_named(module, qualname)):
        raise GraphFileError(f"the function {module}.{qualname} cannot be found by its name",
                             remedy="define it, or the function that returns it, at the top of a module")
    return {"module": module, "qualname": qualname, "code": digest}


def _decode_code(x: dict) -> types.CodeType:
    name = f'{x["module"]}.{x["qualname"]}'
    codes = _codes_named(x["module"], x["qualname"])
    if not codes:
        raise GraphFileError(f"there is no function {name} here", remedy="install what defines it")
    for code in codes:
        if code_digest(code) == x["code"]:
            return code
    raise GraphFileError(f'the function {name} is not the one that was traced (code {x["code"]}, here'
                         f" {code_digest(codes[0])})", remedy="trace again with the code of this run")


def _globals_of(module: str) -> dict:
    return vars(importlib.import_module(module))


def _encode_function(x) -> dict:
    """A function that closes over nothing, with its defaults where they are plain."""
    code = _encode_code(x.__code__, x.__module__, x.__qualname__)
    return {"function": code, "name": x.__name__, "defaults": encode(x.__defaults__),
            "keywords": encode(x.__kwdefaults__)}


def _decode_function(x: dict):
    code = _decode_code(x["function"])
    made = types.FunctionType(code, _globals_of(x["function"]["module"]), x["name"], decode(x["defaults"]))
    made.__kwdefaults__, made.__qualname__ = decode(x["keywords"]), x["function"]["qualname"]
    made.__module__ = x["function"]["module"]
    return made


def _encode_closure(x) -> dict:
    """FlexAttention's _StrippedClosure: a function whose cells are inputs."""
    code = _encode_code(x.code, x.globals_dict["__name__"], x.qualname)
    return {"closure": code, "name": x.name, "defaults": encode(x.defaults), "keywords": encode(x.kwdefaults),
            "more": encode(x.extra_dict), "leaves": [encode(y) for y in x.leaf_entries]}


def _decode_closure(x: dict):
    from torch.nn.attention import flex_attention
    code = x["closure"]
    return flex_attention._StrippedClosure(
        code=_decode_code(code), globals_dict=_globals_of(code["module"]), name=x["name"], qualname=code["qualname"],
        defaults=decode(x["defaults"]), kwdefaults=decode(x["keywords"]), extra_dict=decode(x["more"]),
        leaf_entries=tuple(map(decode, x["leaves"])))


# ------------------------------------------------------------------------------------------ data
def encode(x):
    """`x` as numbers, strings, lists and dictionaries of one key that says what stands there; GraphFileError if it
    holds what has no form here."""
    import torch
    from torch.distributed.tensor.placement_types import Placement
    from torch.nn.attention import flex_attention as flex
    from torch.utils import _pytree
    if type(x) in _ATOMS:
        return x
    if isinstance(x, torch.Size):
        return {"size": [encode(y) for y in x]}
    if isinstance(x, flex._StrippedClosure):
        return _encode_closure(x)
    if isinstance(x, flex._StrippedPartial):
        return {"partial": [encode(y) for y in x.leaf_entries]}
    if isinstance(x, flex._PlainFunction):
        return {"plain": encode(x.fn)}
    if isinstance(x, flex._CallableLeaf):
        return {"callable": encode(x.stripped), "spec": encode(x.callable_spec), "leaves": x.n_extracted}
    if isinstance(x, flex._ExtractedLeaf):
        return {"leaf": True}
    if isinstance(x, flex._MaskModWrapper):
        return {"mask": encode(x.fn), "spec": encode(x.callable_spec)}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return {"named": _class_name(type(x)), "items": [encode(y) for y in x]}
    if type(x) is tuple:
        return {"tuple": [encode(y) for y in x]}
    if type(x) is list:
        return [encode(y) for y in x]
    if type(x) is dict:
        return {"dict": [encode(y) for pair in x.items() for y in pair]}
    if isinstance(x, torch.dtype):
        return {"dtype": str(x)}
    if isinstance(x, Placement) and type(x).__name__ in PLACEMENTS:
        return {"placement": type(x).__name__, **{name: getattr(x, name) for name in PLACEMENTS[type(x).__name__]}}
    if isinstance(x, _pytree.TreeSpec):
        return _encode_spec(x)
    if inspect.isfunction(x) and not x.__closure__:
        return _encode_function(x)
    raise GraphFileError(f"cannot write a {type(x).__name__} of how the step is called: {x!r}",
                         remedy="give the step tensors, numbers, lists, tuples and dictionaries")


def decode(x):
    """What `encode` was given; GraphFileError where a class or function is not here, or is another."""
    if type(x) in _ATOMS:
        return x
    if isinstance(x, list):
        return [decode(y) for y in x]
    what = next(iter(x))
    return _DECODERS[what](x) if what in _DECODERS else _unknown(what)


def _unknown(what: str):
    raise GraphFileError(f"says how the step is called by a {what!r}, which is not known here",
                         remedy="load it with the version of epweave that wrote it")


def _encode_spec(x) -> dict:
    if x.type is None:
        return {"spec": None}
    return {"spec": _class_name(x.type), "context": encode(x.context), "children": [encode(y) for y in x.children()]}


def _decode_spec(x: dict):
    from torch.utils import _pytree
    if x["spec"] is None:
        return _pytree.treespec_leaf()
    kind = _class_named(x["spec"], object)
    return _pytree.TreeSpec(kind, decode(x["context"]), [decode(y) for y in x["children"]])


def _decode_size(x: dict):
    import torch
    return torch.Size(decode(x["size"]))


def _decode_dtype(x: dict):
    import torch
    found = getattr(torch, x["dtype"].removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) else _unknown(x["dtype"])


def _decode_placement(x: dict):
    from torch.distributed.tensor import placement_types
    fields = PLACEMENTS.get(x["placement"])
    if fields is None:
        _unknown(x["placement"])
    return getattr(placement_types, x["placement"])(**{name: x[name] for name in fields})


def _decode_flex(x: dict):
    from torch.nn.attention import flex_attention as flex
    if "partial" in x:
        return flex._StrippedPartial(tuple(map(decode, x["partial"])))
    if "plain" in x:
        return flex._PlainFunction(decode(x["plain"]))
    if "callable" in x:
        return flex._CallableLeaf(decode(x["callable"]), decode(x["spec"]), x["leaves"])
    if "mask" in x:
        return flex._MaskModWrapper(decode(x["mask"]), decode(x["spec"]))
    return flex._EXTRACTED_LEAF


def _decode_dict(x: dict) -> dict:
    items = [decode(y) for y in x["dict"]]
    return dict(zip(items[::2], items[1::2]))


_DECODERS = {
    "size": _decode_size, "dtype": _decode_dtype, "placement": _decode_placement, "spec": _decode_spec,
    "tuple": lambda x: tuple(decode(y) for y in x["tuple"]), "dict": _decode_dict,
    "named": lambda x: _class_named(x["named"], tuple)(*map(decode, x["items"])),
    "function": _decode_function, "closure": _decode_closure, "partial": _decode_flex, "plain": _decode_flex,
    "callable": _decode_flex, "mask": _decode_flex, "leaf": _decode_flex,
}


# --------------------------------------------------------------------------------------- layouts
def encode_layout(meta) -> dict:
    """A subclasses.Layout, or torchtitan's SubclassMeta."""
    context = meta.context if isinstance(meta, Layout) else meta.ctx
    inner = {name: [count, None if x is None else encode_layout(x)] for name, (count, x) in meta.inner_metas.items()}
    if any(type(e) is not int for e in (*meta.outer_size, *meta.outer_stride)):
        raise GraphFileError(f"a {meta.cls.__name__} of the size {list(meta.outer_size)} is no input or output of an"
                             " artifact", remedy="trace with sizes that are numbers; symbolize gives them symbols")
    return {"cls": _class_name(meta.cls), "attrs": list(meta.attrs), "context": encode(context), "inner": inner,
            "size": list(meta.outer_size), "stride": list(meta.outer_stride)}


def decode_layout(x: dict) -> Layout:
    """The Layout that `encode_layout` was given."""
    import torch
    inner = {name: (count, None if y is None else decode_layout(y)) for name, (count, y) in x["inner"].items()}
    return Layout(_class_named(x["cls"], torch.Tensor), list(x["attrs"]), decode(x["context"]), inner,
                  torch.Size(x["size"]), tuple(x["stride"]))


def encode_calling(traced) -> dict:
    """How torchtitan's TracedResult is called: what `run_traced` reads of it beside its graph."""
    def layouts(table: dict) -> list:
        return [[i, encode_layout(layout.meta)] for i, layout in sorted(table.items())]

    return {"state": list(traced.state_fqns), "num_inputs": traced.num_flat_inputs,
            "inputs": layouts(traced.input_subclass_layouts), "input_spec": encode(traced.user_inputs_spec),
            "num_outputs": traced.num_flat_outputs, "outputs": layouts(traced.output_subclass_layouts),
            "output_spec": encode(traced.output_spec)}
