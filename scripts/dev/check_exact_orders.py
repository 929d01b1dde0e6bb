#!/usr/bin/env python3
"""Finds the best order of each small step of testdata/inductor by trying all, and holds both schedulers against it.

    check_exact_orders.py [testdata/inductor]

A test NAME_best.test holds the order of `schedule`, NAME_like.test that of schedule{like=inductor}. Their steps have at most 12
nodes that move, no writes, and times in a file of costs beside them; the clock is that of docs/overlap.md without host costs.
`schedule` must be as short as the best order of all, and like=inductor not shorter. NAME_ours.test holds what
bucket{plan=overlap},schedule makes of a step that PyTorch's bucketer merges in NAME_like.test: it must be predicted to be as
short, but where its second line says why not. Exits 1 where that is not so.
"""
import json
import pathlib
import re
import sys

LINE = re.compile(r"  %(\w+) = ([\w.]+)\((.*?)\) : (\S+\[[^\]]*\])")
MOVABLE = 12


class Step:
    def __init__(self, graph, costs):
        self.names, self.inputs, self.launches, self.ms = [], {}, {}, {}
        types, self.kinds = {}, {}
        for line in graph.splitlines():
            found = LINE.match(line)
            if not found:
                if placeholder := re.match(r"  %(\w+) = placeholder : (.*\])", line):
                    types[placeholder[1]] = placeholder[2]
                continue
            name, op, arguments, types[name] = found.groups()
            operands = re.findall(r"%(\w+)", arguments)
            self.names.append(name)
            self.inputs[name] = [x for x in operands if x in self.kinds]
            self.kinds[name] = "kernel"
            if op.endswith("wait_tensor.default"):
                self.kinds[name] = "wait" if self.kinds.get(operands[0]) == "launch" else "view"
                self.ms[name] = 0
            elif op.startswith("_c10d_functional"):
                self.kinds[name] = "launch"
                self.launches[name] = re.search(r'"(\w+)"$', arguments)[1]
                self.ms[name] = find_row(costs["collectives"], op, "bytes", size_of(types[operands[0]]))
            else:
                self.ms[name] = find_row(costs["ops"], op, "operands", ", ".join(types[x] for x in operands))
        self.groups = sorted(set(self.launches.values()))

    def start(self):
        return 0.0, (0.0,) * len(self.groups), ()

    def place(self, state, name):
        """The clocks behind the node: of compute, of each group, and when launches end that are not waited for."""
        compute, groups, ends = state
        kind = self.kinds[name]
        if kind == "launch":
            at = self.groups.index(self.launches[name])
            end = max(compute, groups[at]) + self.ms[name]
            return compute, (*groups[:at], end, *groups[at + 1:]), (*ends, (name, end))
        if kind == "wait":
            launch = self.inputs[name][0]
            return max(compute, dict(ends)[launch]), groups, tuple(x for x in ends if x[0] != launch)
        return compute + self.ms[name], groups, ends

    def makespan(self, order):
        state = self.start()
        for name in order:
            state = self.place(state, name)
        return max(state[0], *state[1])

    def best(self):
        """Over all orders; those that placed the same nodes and have the same clocks go on together."""
        states = {(frozenset(), self.start())}
        for _ in self.names:
            states = {(done | {name}, self.place(state, name)) for done, state in states for name in self.names
                      if name not in done and all(x in done for x in self.inputs[name])}
        return min(max(state[0], *state[1]) for _, state in states)


def size_of(text):
    dtype, sizes = re.match(r"\w(\d+)\[(.*)\]", text).groups()
    elements = 1
    for size in sizes.split(","):
        elements *= int(size)
    return elements * int(dtype) // 8


def find_row(rows, op, key, value):
    return next(row["p50"] / 1000 for row in rows if row["op"] == op and row[key] == value)


def read(path):
    parts = re.split(r"^=== (\S+) ===\n", path.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def order_in(text):
    return [found[1] for line in text.splitlines() if (found := LINE.match(line))]


def check(path):
    ours, theirs = read(path), read(path.with_name(path.name.replace("_best", "_like")))
    step = Step(ours["input.txt"], json.loads(ours["costs.json"]))
    if len(step.names) > MOVABLE:
        return [f"{path.name}: {len(step.names)} nodes move; at most {MOVABLE} can be tried"]
    best = step.best()
    found, like = step.makespan(order_in(ours["stdout"])), step.makespan(order_in(theirs["stdout"]))
    print(f"{path.name.removesuffix('_best.test')}: best of all orders {best:g} ms, schedule {found:g}, like=inductor {like:g}")
    problems = []
    if found > best + 1e-9:
        problems.append(f"{path.name}: takes {found:g} ms; an order takes {best:g}")
    if like < best - 1e-9:
        problems.append(f"{path.name}: like=inductor takes {like:g} ms, less than the best of all orders")
    return problems


def predicted(report):
    """Milliseconds of the result, by the last note that says them."""
    notes = [line for line in report.splitlines() if re.search(r"predicted( with its buckets)?: [\d.]+ ms", line)]
    return float(re.findall(r"([\d.]+) ms", notes[-1])[-1])


def check_merged(path):
    name = path.name.removesuffix("_ours.test")
    ours, like = (predicted(read(path.with_name(f"{name}_{kind}.test"))["stderr"]) for kind in ("ours", "like"))
    print(f"{name}: merged by the clock {ours:g} ms, like=inductor {like:g}")
    is_longer, says_so = ours > like, "longer than PyTorch's" in path.read_text().splitlines()[1]
    if is_longer != says_so:
        return [f"{path.name}: takes {ours:g} ms, like=inductor {like:g}; its second line says {'so' if says_so else 'nothing'}"]
    return []


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "testdata/inductor")
    problems = []
    for suffix, find_problems in (("best", check), ("ours", check_merged)):
        tests = sorted(folder.glob(f"*_{suffix}.test"))
        problems += [problem for path in tests for problem in find_problems(path)] or ([] if tests else [f"{folder}: no tests"])
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
