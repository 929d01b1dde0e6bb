"""Tensors that are made of plain ones (DTensor): taken apart for a graph, and put together again."""
from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Layout:
    """How a value of a wrapper class is made of the tensors under `attrs`."""

    cls: type
    attrs: list[str]
    context: object
    inner_metas: dict[str, tuple[int, Layout | None]]  # of each attribute: how many plain tensors, and how made
    outer_size: object
    outer_stride: object

    @property
    def count(self) -> int:
        """How many plain tensors."""
        return sum(count for count, _ in self.inner_metas.values())


def unwrap(x) -> tuple[list, Layout | None]:
    """The plain tensors that `x` is made of, and how; (`[x]`, None) where it is plain itself."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
    if not is_traceable_wrapper_subclass(x):
        return [x], None
    attrs, context = x.__tensor_flatten__()
    parts, inner = [], {}
    for name in attrs:
        found, layout = unwrap(getattr(x, name))
        parts += found
        inner[name] = (len(found), layout)
    return parts, Layout(type(x), attrs, context, inner, x.size(), x.stride())


def _wrap_one(parts: list, layout: Layout | None):
    if layout is None:
        return parts[0]
    made, at = {}, 0
    for name in layout.attrs:
        count, inner = layout.inner_metas[name]
        made[name] = _wrap_one(parts[at:at + count], inner)
        at += count
    return layout.cls.__tensor_unflatten__(made, layout.context, layout.outer_size, layout.outer_stride)


def wrap(parts: list, layouts: list[Layout | None]) -> list:
    """The values that `unwrap` took apart."""
    values, at = [], 0
    for layout in layouts:
        count = 1 if layout is None else layout.count
        values.append(_wrap_one(parts[at:at + count], layout))
        at += count
    return values
