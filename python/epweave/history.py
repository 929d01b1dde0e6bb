"""What passes of epweave said of a graph's nodes, kept while other passes change the graph.

`load` marks each node of the step with what the file says of it. Copies of a node's metadata keep the mark, so that
`export` finds the node again behind passes of others, whatever it is called then. A node keeps its records where it is
still the same call: the same target and, where recorded, the same dtype and sizes. The other nodes are someone
else's: their record says so, with the origins of the node whose metadata they copied.
"""
from __future__ import annotations

import dataclasses

from .expressions import are_equal

MARK = "epweave"  # key of node.meta
OUTSIDE = "outside"  # what the log and the records call passes that are not epweave's


@dataclasses.dataclass(eq=False)
class History:
    """Of one loaded file: its log, the nodes of its first input, and of each node of the step by name."""

    tables: dict  # "passes" and "origins" of the file
    records: dict[str, list[dict]]
    targets: dict[str, str]
    types: dict[str, tuple]

    def __deepcopy__(self, memo) -> History:
        return self  # never changed


@dataclasses.dataclass(frozen=True)
class Mark:
    """What `load` leaves on a node: its name in the file, and the file."""

    name: str
    history: History = dataclasses.field(repr=False)

    def __deepcopy__(self, memo) -> Mark:
        return self


def history_of(message: dict) -> History | None:
    """What a File message says of the nodes of its step; None where no pass made it."""
    nodes = next(g for g in message["graphs"] if g.get("name") is None).get("nodes", ())
    records = {x["name"]: x["provenance"] for x in nodes if x.get("provenance")}
    if not records:
        return None
    return History({key: message[key] for key in ("passes", "origins") if key in message}, records,
                   {x["name"]: x["target"] for x in nodes}, {x["name"]: x["type"] for x in nodes if "type" in x})


def _extents(kind: tuple | None):
    """Dtype and sizes of the Type of a tensor; None of anything else. A file leaves out the sizes of a scalar."""
    return (kind[1]["dtype"], kind[1].get("sizes") or []) if kind is not None and kind[0] == "tensor" else None


def _is_still(node: dict, mark: Mark) -> bool:
    """Whether a node of a Graph message is the call that it was when it was loaded."""
    if node["target"] != mark.history.targets[mark.name]:
        return False
    known, here = _extents(mark.history.types.get(mark.name)), _extents(node.get("type"))
    if known is None or here is None or known == here:
        return True
    (dtype, sizes), (dtype_here, sizes_here) = known, here
    return dtype == dtype_here and len(sizes) == len(sizes_here) and all(map(are_equal, sizes, sizes_here))


def _choose_owners(nodes: list[dict], marks: dict[str, Mark]) -> dict[str, str]:
    """For names of the file the node of `nodes` that is still that one: of several copies the one with its name."""
    claims: dict[str, list[str]] = {}
    for node in nodes:
        mark = marks.get(node["name"])
        if mark is not None and _is_still(node, mark):
            claims.setdefault(mark.name, []).append(node["name"])
    return {name: name if name in copies else copies[0] for name, copies in claims.items()
            if name in copies or len(copies) == 1}


def restore(nodes: list[dict], marks: dict[str, Mark], known: History | None) -> dict:
    """Gives the nodes of a step their records and returns the tables that belong to them; {} where nothing is known.

    `marks` are those of the nodes by name, `known` the history of the module that was loaded.
    """
    history = known or next((mark.history for mark in marks.values()), None)
    if history is None:
        return {}
    has_same_nodes = {n["name"]: n["target"] for n in nodes} == history.targets
    if has_same_nodes:
        marks = {name: Mark(name, history) for name in history.targets}
    else:
        marks = {name: mark for name, mark in marks.items() if mark.history is history}
    if not marks:
        return {}
    owners = _choose_owners(nodes, marks)
    for node in nodes:
        mark = marks.get(node["name"])
        records = history.records.get(mark.name, []) if mark is not None else []
        if mark is not None and owners.get(mark.name) == node["name"]:
            node["provenance"] = records
            continue
        origins = list(dict.fromkeys(origin for record in records for origin in record.get("origins", ())))
        node["provenance"] = [{"pass": OUTSIDE, "role": "ADDED", "origins": origins,
                               "reason": "made by a pass that is not epweave's"}]
    if has_same_nodes and len(owners) == len(nodes):
        return history.tables
    run = {"name": OUTSIDE, "nodes_before": len(history.targets), "nodes_after": len(nodes)}
    return {**history.tables, "passes": [*history.tables.get("passes", ()), run]}
