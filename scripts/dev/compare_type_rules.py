#!/usr/bin/env python3
"""Compares type rules with PyTorch: what is refused, and the dtype and the sizes of what is not.

Each elementwise row of src/ops/op_table.cc whose arguments are tensors and numbers alone is called with every combination of some
dtypes, shapes and numbers, and each row that indexes, gathers or scatters with those of OPERANDS; torch's on meta tensors and on the
CPU. Rows of other ops are left out, as they need shapes of their own.

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
DTYPES = {"b8": torch.bool, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
          "f32": torch.float32, "f64": torch.float64, "c64": torch.complex64}
NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.complex128: "c128"}
NUMBERS = (True, 2, 0.5)
ROW = re.compile(r'\{"(aten\.[\w.]+)",\s*(?:"[^"]*"\s*)+,\s*OpFamily::(\w+)')
ELEMENTWISE = "kElementwise"  # its operands broadcast
INDEXED = ("kIndex", "kGather", "kIndexSelect", "kEmbedding", "kEmbeddingBackward", "kIndexPut", "kScatter", "kScatterAdd",
           "kIndexAdd", "kIndexCopy")


def named(dtype, *sizes):
    """The name of a tensor of ones, or of zeros where it is numbers of rows."""
    return f"%{dtype}_" + "x".join(map(str, sizes))


# Arguments that belong together, which no program has otherwise.
TOGETHER = {"aten.log_sigmoid_backward.default": lambda args: args[1][-2:] == args[2][-2:]}  # the buffer is as large as self

# Torch fills by a mask with one number on the CPU, whatever its dtype; with one on a device it
# refuses another dtype than self's.
FILLS_ON_THE_CPU = ("aten._unsafe_index_put.default", "aten.index_put.default", "aten.index_put_.default")


def fills_on_the_cpu(name, args):
    if name not in FILLS_ON_THE_CPU or not args[1].startswith("[%b8") or args[3]:
        return False
    return args[2].split("_")[1] in ("", "1") and args[2].split("_")[0] != args[0].split("_")[0]


# What each operand may be, of ops that index, by its name. Two are varied at a time: the others
# are the first of their lists.
VALUES = [named(d, 4) for d in DTYPES] + [named("f32"), named("f32", 4, 3), named("f32", 3), named("i64"), named("f32", 1)]
INDICES = [named("i64", 4), named("i32", 4), named("u8", 4), named("b8", 4), named("f32", 4), named("i64"), named("i64", 3),
           named("i64", 5), named("i64", 4, 3), named("i64", 4, 4), named("i64", 1)]
OPERANDS = {
    "self": VALUES, "weight": [named("f32", 4, 3)] + VALUES, "src": VALUES, "source": VALUES, "values": VALUES,
    "grad_output": [named("f32", 4, 3)] + [named(d, 4, 3) for d in DTYPES], "index": INDICES,
    "indices": lambda kind: [f"[{i}]" for i in INDICES] + ["[None]", "[None, %i64_4]", "[%i64_4, %i64_3]"] if "List" in kind else INDICES,
    "dim": [0, -1, 1], "value": list(NUMBERS), "alpha": list(NUMBERS), "num_weights": [5], "padding_idx": [-1],
    "reduce": ['"sum"', '"amax"', '"mean"', '"no"'], "accumulate": [False, True], "scale_grad_by_freq": [False]}


def rows():
    """Each op with whether it indexes."""
    table = ROW.findall((ROOT / "src/ops/op_table.cc").read_text())
    return [(name, family in INDEXED) for name, family in table if family == ELEMENTWISE or family in INDEXED]


def schema_of(name):
    _, op, overload = name.split(".")
    packet = getattr(torch.ops.aten, op, None)
    return getattr(packet, overload, None) if packet is not None else None


def choices(argument):
    """What to give for an argument: tensors by their names; None where there is nothing to give."""
    kind = str(argument.type).replace("Optional[", "").rstrip("]")
    is_optional = argument.type.kind() == "OptionalType"
    if kind == "Tensor":
        return [named(d, 4) for d in DTYPES] + [named(d) for d in ("f32", "f64", "i64")] + ["None"] * is_optional
    if kind in ("number", "Scalar"):
        return list(NUMBERS) + ["None"] * is_optional
    return None


def calls(op):
    """Argument lists and keywords of an elementwise op. Left out: what has a default and is neither a tensor nor a number."""
    positional, keywords = [], []
    for argument in op._schema.arguments:
        values = choices(argument)
        if argument.has_default_value() and (values is None or argument.type.kind() == "OptionalType"):
            if values is None or argument.kwarg_only:
                continue
            if values[0] is True:
                values = values[1:]
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
        for given in itertools.product(*keywords):
            yield args, dict(item for item in given if item)


def indexed_calls(op):
    """Every pair of two operands, the others as they come first."""
    lists = []
    for argument in op._schema.arguments:
        if argument.has_default_value() and argument.name not in ("accumulate", "alpha"):
            continue
        values = OPERANDS.get(argument.name)
        if values is None:
            return
        lists.append((argument, values(str(argument.type)) if callable(values) else values))
    seen = set()
    for varied in itertools.combinations(range(len(lists)), 2):
        for args in itertools.product(*[values if i in varied else values[:1] for i, (_, values) in enumerate(lists)]):
            key = tuple(map(repr, args))
            if key in seen:
                continue
            seen.add(key)
            yield (tuple(a for a, (argument, _) in zip(args, lists) if not argument.kwarg_only),
                   {argument.name: a for a, (argument, _) in zip(args, lists) if argument.kwarg_only})


def value_of(text, is_index, device):
    if not isinstance(text, str):
        return text
    if text == "None":
        return None
    if text.startswith('"'):
        return text[1:-1]
    if text.startswith("["):
        return [value_of(item, True, device) for item in text[1:-1].split(", ")]
    dtype, sizes = text[1:].split("_")
    is_number = is_index and dtype not in ("b8", "u8")  # masks take all
    return (torch.zeros if is_number else torch.ones)([int(n) for n in sizes.split("x") if n], dtype=DTYPES[dtype], device=device)


def call_torch(op, args, given, device):
    """The dtype and the sizes that torch gives, None: it refuses, "?": it has no kernel of this dtype."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = [argument.name for argument in op._schema.arguments]
            result = op(*[value_of(a, name in ("index", "indices"), device) for a, name in zip(args, names)], **given)
    except Exception as error:  # noqa: BLE001, torch throws many kinds
        missing = ("\" not implemented for '", "Could not run", "dynamic shape operator")
        return "?" if any(text in str(error) for text in missing) else None
    if not isinstance(result, torch.Tensor) or result.dtype not in NAMES:
        return "?"
    return f"{NAMES[result.dtype]}{list(result.shape)}"


def ask_torch(op, args, given):
    """What torch's kernel says; where it has none, its meta function may refuse. "?": either is right."""
    traced, run = (call_torch(op, args, given, device) for device in ("meta", "cpu"))
    if run == "?":
        return None if traced is None else "?"
    return run if run is None or run == traced else "?"


def write_arguments(args, given):
    return ", ".join([str(arg) for arg in args] + [f"{name}={value}" for name, value in given.items()])


def ask_epweave(program, asked):
    written = [(name, write_arguments(args, given)) for name, args, given in asked]
    tensors = sorted({tensor for _, text in written for tensor in re.findall(r"%\w+", text)})
    lines = ["epweave text 1", "device cpu", "", "graph"]
    for name in tensors:
        dtype, sizes = name[1:].split("_")
        lines.append(f"  {name} = placeholder : {dtype}[{sizes.replace('x', ', ')}] role=user which={name[1:]}")
    lines += [f"  %n{i} = {name}({text}) : i8[9]" for i, (name, text) in enumerate(written)]  # no call gives this type
    lines.append(f"  output([{tensors[0]}])")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        ran = subprocess.run([program, "verify", file.name], capture_output=True, text=True)
    said = {}
    for i, text in re.findall(r"^type: n(\d+) \([^)]*\): (.*)$", ran.stdout, re.M):
        given = re.search(r"the arguments give (\w+\[[^\]]*\])", text)
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
    for name, indexes in rows():
        if options.ops and name not in options.ops:
            continue
        op = schema_of(name)
        made = list((indexed_calls if indexes else calls)(op)) if op is not None else []
        if not made:
            skipped.append(name)
        fits = TOGETHER.get(name, lambda args: True)
        for args, given in made:
            if not fits(args) or fills_on_the_cpu(name, args):
                continue
            answer = ask_torch(op, args, given)
            if answer != "?":
                asked.append((name, args, given))
                expected.append(answer)
    answers = ask_epweave(options.epweave, asked)
    kinds = {}
    for (name, args, given), wanted, got in zip(asked, expected, answers):
        if wanted == got or (wanted is None and got == "no rule"):  # sizes that data say
            continue
        text = f"{name}({write_arguments(args, given)})"
        kinds.setdefault((name, "taken" if wanted is None else "refused" if got is None else "type"), []).append(
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
