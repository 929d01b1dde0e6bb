"""What a training run with torchtitan is configured to be, as key/values: what an artifact and the run must share."""
from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import os
import types

from .errors import UsageError

# Settings that no graph depends on: where files lie, how long and how closely is watched.
_NOT_OF_THE_GRAPH = {"training": ("steps", "gc_freq", "gc_debug", "max_norm", "global_batch_size"),
                     "compile": ("precompile_artifact_dir", "debug_graph_passes")}
_NEVER_OF_THE_GRAPH = ("param_init",)
_LONG = ("sharding_config",)  # said by a hash
_SECTIONS = ("training", "parallelism", "activation_checkpoint", "compile", "loss")


class _NoText(Exception):
    """A value that would be said alike with another one."""


def _text(x, inside: tuple = ()) -> str:
    """An entry without addresses, alike only for what is alike: functions of a module and classes by their names, lambdas
    and functions within functions by their code, objects by their state. `inside` are the objects that it is part of."""
    if isinstance(x, str):
        return repr(x) if inside else x
    if x is None or isinstance(x, (bool, int, float, complex, bytes, enum.Enum, range, slice, types.EllipsisType)):
        return str(x)
    if isinstance(x, type):
        return f"{x.__module__}.{x.__qualname__}"
    if isinstance(x, types.ModuleType):
        return x.__name__
    for i, other in enumerate(inside):
        if x is other:
            return f"^{i}"
    if len(inside) > 50:
        raise _NoText(x)
    inside = (*inside, x)
    if isinstance(x, functools.partial):
        return f"partial({_text(x.func, inside)}, {_text(x.args, inside)}, {_text(x.keywords, inside)})"
    if isinstance(x, dict):
        return "{" + ", ".join(f"{_text(k, inside)}: {_text(v, inside)}" for k, v in x.items()) + "}"
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(_text(y, inside) for y in x) + "]"
    if isinstance(x, (set, frozenset)):
        return "{" + ", ".join(sorted(_text(y, inside) for y in x)) + "}"
    if isinstance(x, os.PathLike):
        return os.fspath(x)
    if dataclasses.is_dataclass(x):
        return f"{type(x).__qualname__}{_text(_fields(x), inside)}"
    return _text_of_callable(x, inside) or _text_of_object(x, inside)


def _text_of_callable(x, inside: tuple) -> str | None:
    if isinstance(x, types.FunctionType):
        closed = [_text(_content_of(cell), inside) for cell in x.__closure__ or ()]
        name = f"{x.__module__}.{x.__qualname__}" + (f"({', '.join(closed)})" if closed else "")
        if "<" not in x.__qualname__:  # not <lambda>, nor in <locals>: a module has one function of a name
            return name
        code = _text([_parts_of_code(x.__code__), x.__defaults__, x.__kwdefaults__], inside)
        return f"{name}#{hashlib.sha256(code.encode()).hexdigest()[:16]}"
    if isinstance(x, (types.MethodType, types.BuiltinMethodType)):
        owner = x.__self__
        of = "" if owner is None or isinstance(owner, types.ModuleType) else f" of {_text(owner, inside)}"
        return f"{getattr(x, '__module__', None)}.{x.__qualname__}{of}"
    return None


def _content_of(cell):
    try:
        return cell.cell_contents
    except ValueError:  # nothing is assigned yet
        return "nothing"


def _parts_of_code(code: types.CodeType) -> list:
    """What the code does: without its place in a file, which edits elsewhere move."""
    constants = [_parts_of_code(c) if isinstance(c, types.CodeType) else [type(c), c] for c in code.co_consts]
    return [code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_flags,
            code.co_argcount, code.co_kwonlyargcount]


def _text_of_object(x, inside: tuple) -> str:
    """By its class and its state, as copies of it would be made."""
    kind = f"{type(x).__module__}.{type(x).__qualname__}"
    if type(x).__module__ == "torch" and not hasattr(x, "untyped_storage"):  # a dtype, device, layout
        return str(x)
    if hasattr(x, "__qualname__") and hasattr(x, "__module__"):  # an operator, a descriptor
        return f"{x.__module__}.{x.__qualname__}"
    try:
        if hasattr(x, "untyped_storage"):  # a tensor
            return f"{kind}{_text([tuple(x.shape), x.dtype, x.tolist()], inside)}"
        made = x.__reduce_ex__(2)
    except Exception:
        raise _NoText(x) from None
    if isinstance(made, str):  # the name of a global of its module
        return f"{kind}.{made}"
    state = [list(part) if i > 2 and part is not None else part for i, part in enumerate(made[1:], 1)]
    return f"{kind}{_text(state, inside)}"


def _fields(x) -> dict:
    names = [f.name for f in dataclasses.fields(x) if not f.name.startswith("_") and hasattr(x, f.name)]
    return {name: getattr(x, name) for name in names}


def _say(place: str, x) -> str:
    try:
        return _text(x)
    except _NoText as error:
        kind = type(error.args[0])
        raise UsageError(f"{place}: a {kind.__module__}.{kind.__qualname__} in it has no text that tells it from another one, "
                         "so that no artifact can say whether it fits",
                         remedy="configure it with a function of a module, a dataclass, or an object that can be pickled") from None


def flatten(name: str, x, leave_out: tuple[str, ...] = (), place: str | None = None) -> dict[str, str]:
    """{"name.field.field": text} of a configuration. Of a list of configurations each says what is not as in the one
    before it, so that equal layers are said once. `place` is what an error calls it, if not `name`.

    Raises UsageError for a value that has no text which tells it from others."""
    place = name if place is None else place
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        out = {f"{name}.is": type(x).__qualname__}
        for key, value in _fields(x).items():
            if key in _LONG and value is not None:
                out[f"{name}.{key}"] = hashlib.sha256(_say(f"{place}.{key}", value).encode()).hexdigest()[:16]
            elif key not in leave_out and key not in _NEVER_OF_THE_GRAPH:
                out |= flatten(f"{name}.{key}", value, place=f"{place}.{key}")
        return out
    if not (isinstance(x, (list, tuple)) and x and all(dataclasses.is_dataclass(y) for y in x)):
        return {name: _say(place, x)}
    out, before = {f"{name}.count": str(len(x))}, {}
    for i, item in enumerate(x):
        here = flatten("", item, place=f"{place}.{i}")
        changed = {k: here.get(k, "absent") for k in {**before, **here} if here.get(k) != before.get(k)}
        out |= {f"{name}.{i}{key}": value for key, value in changed.items()}
        before = here
    return out


def describe_state(model) -> str:
    """A hash of names, shapes, dtypes and placements of parameters and buffers, in order."""
    rows = []
    for kind, entries in (("parameter", model.named_parameters(remove_duplicate=False)),
                          ("buffer", model.named_buffers(remove_duplicate=False))):
        for name, x in entries:
            mesh = getattr(x, "device_mesh", None)
            placed = ""
            if mesh is not None:
                placed = f"{[str(p) for p in x.placements]} {mesh.mesh_dim_names} {tuple(mesh.shape)}"
            rows.append(f"{kind} {name} {tuple(x.shape)} {x.dtype} {x.requires_grad} {placed}")
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def describe_job(trainer, pipeline: str) -> dict[str, str]:
    """The key/values of a trainer: model, training, parallelism, memory policy, compile options, loss, versions."""
    import torch
    config, dims, model = trainer.config, trainer.parallel_dims, trainer.model_parts[0]
    out = {"pipeline": pipeline, "torch": str(torch.__version__),
           "torchtitan": importlib.metadata.version("torchtitan"), "device": trainer.device.type, "state": describe_state(model),
           "deterministic": str(torch.are_deterministic_algorithms_enabled()),
           "default_dtype": str(torch.get_default_dtype()), "world_size": str(dims.world_size)}
    out |= flatten("model", config.model_spec.model)
    out |= {"model.name": str(config.model_spec.name), "model.flavor": str(config.model_spec.flavor)}
    for section in _SECTIONS:
        out |= flatten(section, getattr(config, section), _NOT_OF_THE_GRAPH.get(section, ()))
    for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep"):
        out[f"mesh.{axis}"] = str(getattr(dims, axis))
    return out
