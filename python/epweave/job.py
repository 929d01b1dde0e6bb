"""What a training run with torchtitan is configured to be, as key/values: what an artifact and the run must share."""
from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata

# Settings that no graph depends on: where files lie, how long and how closely is watched.
_NOT_OF_THE_GRAPH = {"training": ("steps", "gc_freq", "gc_debug", "max_norm", "global_batch_size"),
                     "compile": ("precompile_artifact_dir", "debug_graph_passes")}
_NEVER_OF_THE_GRAPH = ("param_init",)
_LONG = ("sharding_config",)  # said by a hash
_SECTIONS = ("training", "parallelism", "activation_checkpoint", "compile", "loss")


def _text(x) -> str:
    """An entry without addresses: functions and objects by their names."""
    if isinstance(x, functools.partial):
        return f"partial({_text(x.func)}, {_text(x.args)}, {_text(x.keywords)})"
    if isinstance(x, enum.Enum):
        return str(x)
    if x is None or isinstance(x, (bool, int, float, complex, str)):
        return str(x)
    if isinstance(x, dict):
        return "{" + ", ".join(f"{_text(k)}: {_text(v)}" for k, v in x.items()) + "}"
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(_text, x)) + "]"
    if isinstance(x, (set, frozenset)):
        return "{" + ", ".join(sorted(map(_text, x))) + "}"
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return f"{type(x).__qualname__}{_text(_fields(x))}"
    kind = x if hasattr(x, "__qualname__") else type(x)
    if type(x).__module__ == "torch":  # a dtype, device, layout
        return str(x)
    closed = [_text(cell.cell_contents) for cell in getattr(x, "__closure__", None) or ()]
    return f"{kind.__module__}.{kind.__qualname__}" + (f"({', '.join(closed)})" if closed else "")


def _fields(x) -> dict:
    names = [f.name for f in dataclasses.fields(x) if not f.name.startswith("_") and hasattr(x, f.name)]
    return {name: getattr(x, name) for name in names}


def flatten(name: str, x, leave_out: tuple[str, ...] = ()) -> dict[str, str]:
    """{"name.field.field": text} of a configuration. Of a list of configurations each says what is not as in the one
    before it, so that equal layers are said once."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        out = {f"{name}.is": type(x).__qualname__}
        for key, value in _fields(x).items():
            if key in _LONG and value is not None:
                out[f"{name}.{key}"] = hashlib.sha256(_text(value).encode()).hexdigest()[:16]
            elif key not in leave_out and key not in _NEVER_OF_THE_GRAPH:
                out |= flatten(f"{name}.{key}", value)
        return out
    if not (isinstance(x, (list, tuple)) and x and all(dataclasses.is_dataclass(y) for y in x)):
        return {name: _text(x)}
    out, before = {f"{name}.count": str(len(x))}, {}
    for i, item in enumerate(x):
        here = flatten("", item)
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
