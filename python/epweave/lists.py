"""Operators on lists of tensors, `aten._foreach_*`, as calls for each tensor: what optimizers and gradient clipping use.

    torch._foreach_mul_(gradients, 0.5)    ->    mul_(gradients[0], 0.5); mul_(gradients[1], 0.5); ..
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_PREFIX = "aten::_foreach_"
# Those that are called otherwise for one tensor.
_OF_ONE = {"norm": "linalg_vector_norm"}
# A type of a schema by what one element of the list has.
_ELEMENTS = {"List[Tensor]": "Tensor", "List[number]": "number"}


def _bind(listed, single) -> dict[str, str] | None:
    """Which parameter of the call for one tensor each of the list's is: of its name, else the next one of its type."""
    bound: dict[str, str] = {}
    by_name = {a.name: a for a in single.arguments}
    for parameter in listed.arguments:
        wanted = _ELEMENTS.get(str(parameter.type), str(parameter.type))
        candidates = [by_name[parameter.name]] if parameter.name in by_name else single.arguments
        free = [a.name for a in candidates if a.name not in bound.values() and str(a.type) == wanted]
        if not free:
            return None
        bound[parameter.name] = free[0]
    needed = {a.name for a in single.arguments if not a.has_default_value()}
    return bound if needed <= set(bound.values()) else None


def _call_each(listed, single: Callable, bound: dict[str, str], copies: bool, *args, **kwargs) -> list | None:
    parameters = listed.arguments
    given = {p.name: p.default_value for p in parameters if p.has_default_value()}
    given.update(zip((p.name for p in parameters), args))
    given.update(kwargs)
    each = [p.name for p in parameters if str(p.type) in _ELEMENTS]
    results = [single(**{bound[name]: value[i] if name in each else value for name, value in given.items()})
               for i in range(len(given[each[0]]))]
    if copies:
        for written, result in zip(given[each[0]], results):
            written.copy_(result)
    return results if listed.returns else None


def list_decompositions() -> dict[Any, Callable]:
    """A decomposition for each operator on lists that has a counterpart for one tensor."""
    import torch
    found: dict[Any, Callable] = {}
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith(_PREFIX):
            continue
        word, _, overload = name.removeprefix(_PREFIX).partition(".")
        listed = getattr(getattr(torch.ops.aten, f"_foreach_{word}"), overload or "default")
        one = _OF_ONE.get(word, word)
        packet = getattr(torch.ops.aten, one, None)
        # In place, and for one tensor there is none such: its result is copied (maximum_).
        copies = packet is None and listed._schema.is_mutable
        if copies:
            packet = getattr(torch.ops.aten, one.removesuffix("_"), None)
        if overload.endswith("out") or packet is None:
            continue
        for single in (getattr(packet, kind) for kind in packet.overloads()):
            if single._schema.is_mutable == (listed._schema.is_mutable and not copies) and (
                    bound := _bind(listed._schema, single._schema)):
                found[listed] = functools.partial(_call_each, listed._schema, single, bound, copies)
                break
    return found
