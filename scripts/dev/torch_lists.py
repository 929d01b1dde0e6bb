#!/usr/bin/env python3
"""What PyTorch lists of ops, against which memory_traits_test.cc compares src/ops/memory_traits.cc. Needs torch.

    torch_lists.py           exits 1 where testdata/kernels/torch_lists.txt is not what this torch says
    torch_lists.py --update  writes it

A line for each row of the op table that torch has an operator for, and one for each name in a list: of all its overloads.
"""
import pathlib
import re
import sys

import torch
from torch._functorch import partitioners
from torch.utils.flop_counter import flop_registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from epweave.operators import name_of_operator, operator_named  # noqa: E402

LISTS = ROOT / "testdata/kernels/torch_lists.txt"
HEAD = """# Written by scripts/dev/torch_lists.py: what torch 2.15 lists of ops. Of a name in front of which stands a `*`, of all overloads;
# whether torch tags an op `pointwise` is said of overloads alone.
"""


def packet_name(operator):
    name = name_of_operator(operator)
    return name and name.removesuffix(".<packet>")


def packets_by_list():
    """{trait: names}. The registry of the flop counter names packets and higher-order operators."""
    ops = partitioners.get_default_op_list()
    lists = {"recomputable": ops.recomputable_ops, "fusible": ops.fusible_ops, "view": ops.view_ops,
             "random": ops.random_ops, "compute-intensive": ops.compute_intensive_ops, "flops": flop_registry}
    return {trait: {name for operator in operators if (name := packet_name(operator))}
            for trait, operators in lists.items()}


def find_operator(target):
    try:
        return operator_named(target)
    except Exception:  # of a library that is not here
        return None


def lines():
    targets = re.findall(r'^    \{"([^"]+)",', (ROOT / "src/ops/op_table.cc").read_text(), re.M)
    lists = packets_by_list()
    rows = {}
    for target in targets:
        operator = find_operator(target)
        if not isinstance(operator, torch._ops.OpOverload):
            continue
        packet = target.rsplit(".", 1)[0]
        rows[target] = ["pointwise"] * (torch.Tag.pointwise in operator.tags)
        rows[target] += [trait for trait, names in lists.items() if packet in names]
    for name in sorted(set().union(*lists.values())):
        rows[f"*{name}"] = [trait for trait, names in lists.items() if name in names]
    return HEAD + "".join(f"{name} {' '.join(traits)}".rstrip() + "\n" for name, traits in rows.items())


def main():
    text = lines()
    if sys.argv[1:] == ["--update"]:
        LISTS.write_text(text)
    elif LISTS.read_text() != text:
        sys.exit(f"{LISTS.relative_to(ROOT)} is not what torch {torch.__version__} says: torch_lists.py --update")
    print(f"torch lists: {text.count(chr(10)) - HEAD.count(chr(10))} rows")


if __name__ == "__main__":
    main()
