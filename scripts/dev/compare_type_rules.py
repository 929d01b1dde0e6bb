#!/usr/bin/env python3
"""Compares the type rules of elementwise calls with PyTorch: what is refused, and the dtype of what is not.

Each row of src/ops/op_table.cc whose arguments are tensors and numbers alone is called with every combination of some dtypes and
numbers, torch's on meta tensors and on the CPU. Rows of other ops are left out, as they need shapes of their own.

    compare_type_rules.py [--epweave PROGRAM] [OP...]     exits 1 where they differ; needs torch
"""
import argparse
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {"b8": torch.bool, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "bf16": torch.bfloat16, "f32": torch.float32, "c64": torch.complex64}
NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.float64: "f64", torch.float16: "f16"}
NUMBERS = (True, 2, 0.5)
ROW = re.compile(r'\{"(aten\.[\w.]+)",\s*(?:"[^"]*"\s*)+,\s*OpFamily::(\w+)')
FAMILY = "kElementwise"  # its operands broadcast; other families need shapes of their own


def rows():
    return [name for name, family in ROW.findall((ROOT / "src/ops/op_table.cc").read_text()) if family == FAMILY]


def schema_of(name):
    _, op, overload = name.split(".")
    packet = getattr(torch.ops.aten, op, None)
    return getattr(packet, overload, None) if packet is not None else None


def choices(argument):
    """What to give for an argument: tensors by the names of their dtypes; None where there is nothing to give."""
    kind = str(argument.type).replace("Optional[", "").rstrip("]")
    if kind == "Tensor":
        return [f"%{name}" for name in DTYPES] + (["%s_f32", "%s_i64"] if argument.name != "self" else [])
    if kind in ("number", "Scalar"):
        return list(NUMBERS)
    return None


def calls(op):
    """Argument lists and keywords. Left out: what has a default and is neither a tensor nor a number."""
    positional, keywords = [], []
    for argument in op._schema.arguments:
        values = choices(argument)
        if argument.has_default_value() and (values is None or argument.type.kind() == "OptionalType"):
            if values is None or argument.kwarg_only:
                continue
            if not isinstance(values[0], str):
                values = [number for number in NUMBERS if number is not True]
        if values is None:
            return
        if not argument.kwarg_only:
            positional.append(values)
        elif argument.has_default_value():
            keywords.append([(argument.name, value) for value in values] + [None])
        else:
            return
    if not positional or not isinstance(positional[0][0], str):
        return
    for args in itertools.product(*positional):
        for named in itertools.product(*keywords):
            yield args, dict(item for item in named if item)


def tensor(name, device):
    scalar, _, dtype = name[1:].rpartition("_")
    return torch.ones([] if scalar else [4], dtype=DTYPES[dtype], device=device)


def call_torch(op, args, named, device):
    """The dtype that torch gives, None: it refuses, "?": it has no kernel of this dtype."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = op(*[tensor(a, device) if isinstance(a, str) else a for a in args], **named)
    except Exception as error:  # noqa: BLE001, torch throws many kinds
        return "?" if "\" not implemented for '" in str(error) or "Could not run" in str(error) else None
    return NAMES.get(result.dtype, "?") if isinstance(result, torch.Tensor) else "?"


def ask_torch(op, args, named):
    """What torch's kernel says; where it has none, its meta function may refuse. "?": either is right."""
    traced, run = (call_torch(op, args, named, device) for device in ("meta", "cpu"))
    if run == "?":
        return None if traced is None else "?"
    return run if run is None or run == traced else "?"


def write_arguments(args, named):
    return ", ".join([str(arg) for arg in args] + [f"{name}={value}" for name, value in named.items()])


def ask_epweave(program, asked):
    lines = ["epweave text 1", "device cpu", "", "graph"]
    lines += [f"  %{d} = placeholder : {d}[4] role=user which={d}" for d in DTYPES]
    lines += [f"  %s_{d} = placeholder : {d}[] role=user which=s_{d}" for d in ("f32", "i64")]
    for i, (name, args, named) in enumerate(asked):
        lines.append(f"  %n{i} = {name}({write_arguments(args, named)}) : i8[9]")  # no call gives this type
    lines.append("  output([%f32])")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        ran = subprocess.run([program, "verify", file.name], capture_output=True, text=True)
    said = {}
    for i, text in re.findall(r"^type: n(\d+) \([^)]*\): (.*)$", ran.stdout, re.M):
        given = re.search(r"the arguments give (\w+)\[", text)
        said[int(i)] = given.group(1) if given else None
    if not said:
        raise SystemExit(f"{program}: {ran.stdout}{ran.stderr}"[:2000])
    return [said.get(i, "no rule") for i in range(len(asked))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epweave", default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--all", action="store_true", help="print every call that differs, not one of each kind")
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args()
    asked, expected, skipped = [], [], []
    for name in rows():
        if options.ops and name not in options.ops:
            continue
        op = schema_of(name)
        made = list(calls(op)) if op is not None else []
        if not made:
            skipped.append(name)
        for args, named in made:
            answer = ask_torch(op, args, named)
            if answer != "?":
                asked.append((name, args, named))
                expected.append(answer)
    answers = ask_epweave(options.epweave, asked)
    kinds = {}
    for (name, args, named), wanted, got in zip(asked, expected, answers):
        if wanted == got:
            continue
        text = f"{name}({write_arguments(args, named)})"
        kinds.setdefault((name, "taken" if wanted is None else "refused" if got is None else "dtype"), []).append(
            f"{text}: torch {wanted or 'refuses'}, here {got or 'refused'}")
    for (name, kind), found in kinds.items():
        print(f"{name}: {kind}: {len(found)}")
        for line in found if options.all else found[:3]:
            print(f"  {line}")
    print(f"{len(asked)} calls of {len({a[0] for a in asked})} ops compared, {sum(map(len, kinds.values()))} differ; "
          f"left out: {' '.join(skipped)}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
