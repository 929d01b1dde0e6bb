#!/usr/bin/env python3
"""Checks that what is known of ops does not spread by name.

What an op is stands once, in the rows of src/ops/op_table.cc: its schema, family, linearity, type rule, cost class. An
op name in quotes elsewhere is a fact of an op written again. It may stand in tables of kernels, in what writes new nodes or
translates names, in what generates graphs for tests, and in tests. What else names ops is listed in op_names.txt with how often:
a file may name fewer, none may name more, and none may be added.

    check_op_names.py            exits 1 where a file names more ops than its row says
    check_op_names.py --update   writes the list anew; refused where a file names more ops than before
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "scripts/dev/op_names.txt"
NAME = re.compile(
    r'"(?:aten|prims|operator|higher_order|ao|_dtensor|device_mesh|symm_mem|bucketing|coor|torchtitan|'
    r'_c10d_functional(?:_autograd)?)\.[A-Za-z_0-9.<>]+"'
)
# Tables of kernels, generators of graphs, translators of names, what calls ops for their results.
ALLOWED = ("src/ops/op_table.cc", "src/ops/memory_traits.cc", "src/replay/kernels/", "src/replay/cublas/", "src/replay/bounds/tensor_ops.h", "src/testing/", "src/io/pt2/", "tools/dev/")


def names_in(path):
    return len(NAME.findall(re.sub(r"//.*", "", path.read_text())))


def count():
    counts = {}
    for folder in ("src", "tools"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".cc", ".h") or name.startswith(ALLOWED) or path.stem.endswith("_test"):
                continue
            if number := names_in(path):
                counts[name] = number
    return counts


def read_list():
    rows = (line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {path: int(number) for number, path in rows}


def write_list(counts):
    head = "# How many op names each file has in quotes, beyond those that check_op_names.py allows. To become fewer.\n"
    LIST.write_text(head + "".join(f"{number:4d} {path}\n" for path, number in sorted(counts.items())))


def main():
    counts = count()
    listed = read_list()
    more = [f"{path}: {number} op names in quotes, where {listed.get(path, 0)} are listed" for path, number in counts.items()
            if number > listed.get(path, 0)]
    for line in more:
        print(line)
    if more:
        print("read a property of the op's row instead (src/ops/op.h: family, linearity, cost; src/ops/mapping.h)")
    elif sys.argv[1:] == ["--update"]:
        write_list(counts)
    else:
        print(f"op names: {sum(counts.values())} in {len(counts)} files, none more than listed")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
