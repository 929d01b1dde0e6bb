"""Values of the graph file as Python pairs, and where a node's metadata is stored."""
from __future__ import annotations

import math
import struct


NONE = ("none", True)


def real(x: float) -> tuple:
    """The Value of a Python float."""
    if math.isnan(x):
        return "nan", struct.unpack("<Q", struct.pack("<d", x))[0]
    return "real", x


def real_of(value: tuple) -> float:
    """The Python float of a Value made by `real`."""
    kind, x = value
    return struct.unpack("<d", struct.pack("<Q", x))[0] if kind == "nan" else x


def fits(x: int) -> bool:
    return -1 << 63 <= x < 1 << 63


def is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def integer(x: int) -> tuple:
    """The Value of a Python int; one beyond 64 bits is opaque, of class "int".

    Such numbers occur: autograd's "no sequence number" is 2**64 - 1.
    """
    return ("integer", x) if fits(x) else ("opaque", [("text", str(x)), ("text", "int")])


# Metadata entries with a field of their own: key -> (submessage or None, field, kind of Value).
_META_FIELDS = {
    "autograd_backward": (None, "backward", "boolean"),
    "seq_nr": (None, "seq_nr", "integer"),
    "stack_trace": (None, "source", "text"),
    "recompute": (None, "recompute", "text"),
    "chunked_region_fqn": ("chunk", "region", "text"),
    "chunked_region_role": ("chunk", "role", "text"),
    "chunk_id": ("chunk", "part", "integer"),
    "chunked_region_is_backward": ("chunk", "backward", "boolean"),
    "chunked_region_producer": ("chunk", "producer", "text"),
    "chunked_original_name": ("chunk", "original_name", "text"),
    "chunked_materialization_proof": ("chunk", "proof", "text"),
}
_CUSTOM_FIELDS = {
    "module_fqn": (None, "module", "text"),
    "EP": ("ep", "ep", "text"),
    "EP_token_count_exchange": ("ep", "token_count_exchange", "text"),
    "EP_token_count_sync": ("ep", "token_count_sync", "text"),
    "EP_token_exchange": ("ep", "token_exchange", "text"),
    "EP_token_exchange_wait": ("ep", "token_exchange_wait", "text"),
}


def _put_entry(node: dict, fields: dict, rest: str, key: str, value: tuple) -> None:
    """Store an entry in the field that `fields` gives it if its type fits, else in `rest`."""
    owner, field, kind = fields.get(key, (None, None, None))
    if kind != value[0]:
        node.setdefault(rest, []).append({"name": key, "value": value})
    elif owner is None:
        node[field] = value[1]
    else:
        node.setdefault(owner, {})[field] = value[1]


def put_meta(node: dict, key: str, value: tuple) -> None:
    """Store one entry of fx.Node.meta, as a Value, in a Node message."""
    if key == "custom" and value[0] == "dict" and all(k[0] == "text" for k in value[1][::2]):
        node["has_custom"] = True
        for name, entry in zip(value[1][::2], value[1][1::2]):
            _put_entry(node, _CUSTOM_FIELDS, "custom", name[1], entry)
    else:
        _put_entry(node, _META_FIELDS, "meta", key, value)


def _get_entries(node: dict, fields: dict, rest: str) -> dict[str, tuple]:
    out = {}
    for key, (owner, field, kind) in fields.items():
        if owner is None:
            x = node.get(field)
        elif owner in node:
            x = node[owner].get(field)
        else:
            continue
        if x is not None:
            out[key] = (kind, x)
    for entry in node.get(rest, ()):
        out.setdefault(entry["name"], entry["value"])
    return out


def get_meta(node: dict) -> dict[str, tuple]:
    """The entries stored by `put_meta`."""
    out = _get_entries(node, _META_FIELDS, "meta")
    if node.get("has_custom"):
        custom = _get_entries(node, _CUSTOM_FIELDS, "custom")
        out["custom"] = ("dict", [x for k, v in custom.items() for x in (("text", k), v)])
    return out
