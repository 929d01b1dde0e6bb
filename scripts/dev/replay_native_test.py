#!/usr/bin/env python3
"""`epweave-replay --math native`: products by a library, whose algorithm may be another for another number of rows.

EPWEAVE_REPLAY names the program, EPWEAVE_CUBLASLT the library that takes cuBLASLt's place on the emulated device
(src/replay/cublas/testing/stand_in_cublaslt.cc). Its algorithms are tiles: 1 up to 16 rows, 2 up to 64, 3 beyond.
"""
import json
import os
import pathlib
import tempfile

from check_docs import agrees, shown
from replay_tool import expect, run

HEAD = """epweave text 1
graph
  %x = placeholder : f32[96, 32] role=user which=x
  %w = placeholder : f32[32, 24] role=user which=w
  %v = placeholder : f32[24, 8] role=user which=v
"""
WHOLE = HEAD + """  %mm = aten.mm.default(%x, %w) : f32[96, 24]
  %r = aten.relu.default(%mm) : f32[96, 24] @layers.0
  %s = aten.mul.Tensor(%x, %x) : f32[96, 32]
  output([%r, %s])
"""
# Rows 0..47 and 48..95 apart; `second` is what the second part is made of.
PARTS = HEAD + """  %x0 = aten.slice.Tensor(%x, 0, 0, 48) : f32[48, 32]
  %x1 = aten.slice.Tensor(%x, 0, 48, 96) : f32[48, 32]{{32, 1}}+1536
  %mm_chunk0 = aten.mm.default(%x0, %w) : f32[48, 24]
  %mm_chunk1 = aten.mm.default({second}, %w) : f32[48, 24]
  %r_chunk0 = aten.relu.default(%mm_chunk0) : f32[48, 24] @layers.0
  %r_chunk1 = aten.relu.default(%mm_chunk1) : f32[48, 24] @layers.0
  %r = aten.cat.default([%r_chunk0, %r_chunk1]) : f32[96, 24]
  %s = aten.mul.Tensor(%x, %x) : f32[96, 32]
  output([%r, %s])
"""
# A sum over all rows, and the same in two parts.
SUM = HEAD + """  %t = aten.t.default(%x) : f32[32, 96]{1, 32}
  %g = aten.mm.default(%t, %x) : f32[32, 32]
  %n = aten.neg.default(%g) : f32[32, 32]
  output([%n])
"""
SUM_OF_PARTS = HEAD + """  %x0 = aten.slice.Tensor(%x, 0, 0, 48) : f32[48, 32]
  %x1 = aten.slice.Tensor(%x, 0, 48, 96) : f32[48, 32]{32, 1}+1536
  %t_chunk0 = aten.t.default(%x0) : f32[32, 48]{1, 32}
  %t_chunk1 = aten.t.default(%x1) : f32[32, 48]{1, 32}+1536
  %g_chunk0 = aten.mm.default(%t_chunk0, %x0) : f32[32, 32]
  %g_chunk1 = aten.mm.default(%t_chunk1, %x1) : f32[32, 32]
  %g_sum = aten.add.Tensor(%g_chunk0, %g_chunk1) : f32[32, 32]
  %n = aten.neg.default(%g_sum) : f32[32, 32]
  output([%n])
"""


# Two groups of 80 and 16 rows: each takes an algorithm of its own. `operand` is what is multiplied.
GROUPS = """epweave text 1
graph
  %x = placeholder : f32[96, 32] role=user which=x
  %w = placeholder : f32[2, 32, 24] role=user which=w
  %offs = aten.arange.start_step(80, 97, 16) : i64[2]
  %y = aten.neg.default(%x) : f32[96, 32]
  %g = aten._grouped_mm.default({operand}, %w, %offs) : f32[96, 24]
  %n = aten.neg.default(%g) : f32[96, 24]
  output([%n, %y])
"""
# The bounds are changed in place between two products. `bounds` is what the second one is told.
CHANGED_GROUPS = """epweave text 1
graph
  %x = placeholder : f32[96, 32] role=user which=x
  %w = placeholder : f32[2, 32, 24] role=user which=w
  %offs = aten.arange.start_step(80, 97, 16) : i64[2]
  %others = aten.arange.start_step(16, 97, 80) : i64[2]
  %g = aten._grouped_mm.default(%x, %w, %offs) : f32[96, 24]
  %changed = aten.copy_.default(%offs, %others) : i64[2]
  %h = aten._grouped_mm.default(%x, %w, {bounds}) : f32[96, 24]
  output([%g, %h, %changed])
"""
# A division by zero, and then group bounds that descend.
FAULTS = """epweave text 1
graph
  %x = placeholder : f32[96, 32] role=user which=x
  %w = placeholder : f32[2, 32, 24] role=user which=w
  %offs = aten.arange.start_step(80, 97, 16) : i64[2]
  %zero = aten.sub.Tensor(%offs, %offs) : i64[2]
  %q = aten.floor_divide.default(%offs, %zero) : i64[2]
  %down = aten.neg.default(%offs) : i64[2]
  %g = aten._grouped_mm.default(%x, %w, %down) : f32[96, 24]
  output([%g, %q])
"""


def check(a, b, *options):
    code, output, errors = run("check", a, b, "--ranks", 2, "--device", "emulated", *options)
    return code, output + errors


def check_refusals(folder):
    graph = folder / "whole.txt"
    for options, code, message in (
        (["--math", "native"], 2, "--math native is a GPU's"),
        (["--device", "emulated", "--pin-rows"], 2, "--pin-rows is of --math native"),
        (["--device", "emulated", "--math", "fast"], 2, "fast"),
    ):
        found, _, errors = run("run", graph, "--ranks", 1, *options)
        expect(found == code and message in errors, f"{options}: exit {found}: {errors}")
    found, output, errors = run(
        "run", graph, "--ranks", 1, "--device", "emulated", "--math", "native", "--json", EPWEAVE_CUBLASLT="/none.so"
    )
    expect(found == 4 and "replay.no-cublaslt" in output, f"without the library: exit {found}: {output}{errors}")
    found, _, errors = run("check", graph, graph, "--ranks", 1, "--math", "native", "--device-a", "emulated")
    expect(found == 2, f"native on the CPU: exit {found}: {errors}")


def check_run(folder):
    code, output, errors = run(
        "run", folder / "whole.txt", "--ranks", 2, "--device", "emulated", "--math", "native", "--json", "--repeat", 2
    )
    expect(code == 0, f"native: exit {code}: {errors}")
    report = json.loads(output)
    environment = report["environment"]
    expect(environment["math"] == "native" and "multiprocessors" in environment["determinism"], environment)
    expect(environment["device"]["cublaslt"] == "13.1.0", environment)
    expect(environment["device"]["NVIDIA_TF32_OVERRIDE"] == "0", environment)
    for rank in report["ranks"]:
        products = rank["library_products"]
        expect(len(products) == 1 and products[0]["launches"] == 1, products)
        expect(products[0]["shape"] == "f32[96, 32] x [32, 24]" and "tile 3" in products[0]["algorithm"], products)
    again = json.loads(
        run("run", folder / "whole.txt", "--ranks", 2, "--device", "emulated", "--math", "native", "--json")[1]
    )
    expect([r["results"] for r in again["ranks"]] == [r["results"] for r in report["ranks"]], "other bits the second time")
    portable = json.loads(run("run", folder / "whole.txt", "--ranks", 2, "--device", "emulated", "--json")[1])
    expect(portable["environment"]["math"] == "portable", portable["environment"])
    expect(portable["ranks"][0]["results"][0] != report["ranks"][0]["results"][0], "the library was not used")


def check_who_multiplies(folder):
    """One line says how many products the library took; it refuses a depth of 61."""
    run_native = ["run", folder / "whole.txt", "--ranks", 2, "--device", "emulated", "--math", "native"]
    _, _, errors = run(*run_native)
    expect("\n2 of 2 products by cuBLASLt\n" in errors, errors)
    refused = folder / "refused.txt"
    refused.write_text(WHOLE.replace("32]", "61]").replace("[32, 24]", "[61, 24]"))
    _, _, errors = run("run", refused, *run_native[2:])
    expect("warning: 0 of 2 products by cuBLASLt: it has no algorithm for the others" in errors, errors)
    _, _, errors = run("run", folder / "whole.txt", "--ranks", 2, "--device", "emulated")
    expect("cuBLASLt" not in errors, errors)


def check_library_names(folder):
    """cuBLASLt of CUDA 13, else of CUDA 12, where the loader finds it. A file that is empty cannot be loaded."""
    library = pathlib.Path(os.environ["EPWEAVE_CUBLASLT"])
    options = ["run", folder / "whole.txt", "--ranks", 1, "--device", "emulated", "--math", "native", "--json"]
    place = folder / "lib"
    place.mkdir()
    both = [place / "libcublasLt.so.12", place / "libcublasLt.so.13"]
    for path in both:
        path.touch()
    code, output, errors = run(*options, EPWEAVE_CUBLASLT="", LD_LIBRARY_PATH=str(place))
    expect(code == 4 and all(f"{path}: file too short" in errors for path in both), f"none: exit {code}: {errors}")
    for path in both:
        path.unlink()
        path.symlink_to(library)
        code, output, errors = run(*options, EPWEAVE_CUBLASLT="", LD_LIBRARY_PATH=str(place))
        expect(code == 0, f"{path}: exit {code}: {errors}")
        expect(json.loads(output)["environment"]["device"]["cublaslt_library"] == str(path), output)


def check_graphs(folder):
    """The library's products are part of the graphs; bounds of groups that the host reads are not."""
    for name in ("whole.txt", "groups.txt"):
        options = ["run", folder / name, "--ranks", 2, "--device", "emulated", "--math", "native", "--json"]
        plain = json.loads(run(*options)[1])
        code, output, errors = run(*options, "--cuda-graphs", "--repeat", 3)
        expect(code == 0, f"native, graphs: exit {code}: {errors}")
        for rank, expected in zip(json.loads(output)["ranks"], plain["ranks"]):
            expect(rank["results"] == expected["results"], f"{name}: other bits with graphs")
            expect(rank["library_products"] == expected["library_products"], f"{name}: {rank['library_products']}")
            use = rank["cuda_graphs"]
            expect(use["replayed"] == use["instantiated"] > 0 and not use["interruptions"], f"{name}: {use}")
    expect(use["stretches"] == 2, use)
    _, output, _ = run("run", folder / "whole.txt", "--ranks", 1, "--device", "emulated", "--math", "native", "--json",
                       "--cuda-graphs", "--repeat", 2)
    use = json.loads(output)["ranks"][0]["cuda_graphs"]
    expect(use["stretches"] == 1 and use["kernels"] == 3, use)  # the product, relu, mul


def check_rows(folder):
    whole, parts, wrong = folder / "whole.txt", folder / "parts.txt", folder / "wrong.txt"
    code, text = check(whole, parts)
    expect(code == 0 and text.splitlines()[-1].startswith("same"), f"portable: exit {code}: {text}")

    code, text = check(whole, parts, "--math", "native")
    expect(code == 1 and "not verified" in text.splitlines(), f"native: exit {code}: {text}")
    page = shown("docs/gpu.md", "epweave-replay check whole.txt parts.txt --ranks 2 --device emulated --math native")
    expect(agrees(page, text), f"docs/gpu.md shows\n{page}\nnot\n{text}")
    for line in (
        "2 products took another algorithm of the library in B, and differ:",
        "  %mm on 2 of 2 ranks",
        "    A: f32[96, 32] x [32, 24]: algorithm 66, tile 3",
        "    B: f32[48, 32] x [32, 24]: algorithm 66, tile 2",
        "  the first, %mm_chunk0 = aten.mm.default: first at ",
        "outputs: 2 equal, 0 reordered, 0 sum-order, 2 library-kernel, 0 unverified, 0 differs",
        "nodes of rank 0-1: 4 equal, 0 reordered, 0 sum-order, 3 library-kernel, 0 unverified, 0 differs; 2 skipped",
    ):
        expect(line in text, f"native: no '{line}' in:\n{text}")
    report = json.loads(
        run("check", whole, parts, "--ranks", 2, "--device", "emulated", "--math", "native", "--json")[1]
    )
    changes = report["library_kernels"]["changes"]
    expect(report["verdict"] == "not verified" and report["same"] is False, report)
    expect([c["origin"] for c in changes] == ["mm", "mm"] and [c["rank"] for c in changes] == [0, 1], changes)
    expect(report["library_kernels"]["first"]["difference"]["differing"] > 0, report["library_kernels"])
    expect(report["ranks"][0]["nodes"]["library-kernel"] == 3, report["ranks"])

    code, text = check(whole, parts, "--math", "native", "--pin-rows")
    expect(code == 0 and "another algorithm" not in text, f"pinned: exit {code}: {text}")
    # A fault is not taken for an algorithm's: where rows are pinned it differs, where they are not
    # it is not "same".
    code, text = check(whole, wrong, "--math", "native", "--pin-rows")
    expect(code == 1 and "different" in text.splitlines(), f"a fault, pinned: exit {code}: {text}")
    code, text = check(whole, wrong, "--math", "native")
    expect(code == 1 and "same" not in text.splitlines(), f"a fault: exit {code}: {text}")


def check_sums(folder):
    whole, parts = folder / "sum.txt", folder / "sum_of_parts.txt"
    code, text = check(whole, parts)
    expect(code == 0, f"a regrouped sum, portable: exit {code}: {text}")
    for pin in ([], ["--pin-rows"]):
        code, text = check(whole, parts, "--math", "native", *pin)
        expect(code == 1 and "not verified" in text.splitlines(), f"a regrouped sum, native {pin}: exit {code}: {text}")
        expect("0 differs" in text and "portable math only" in text, f"a regrouped sum, native {pin}: {text}")


def check_groups(folder):
    code, text = check(folder / "groups.txt", folder / "groups.txt", "--math", "native")
    expect(code == 0, f"groups: exit {code}: {text}")
    code, text = check(folder / "groups.txt", folder / "wrong_groups.txt", "--math", "native")
    expect(code == 1 and "different" in text.splitlines(), f"a fault in a grouped product: exit {code}: {text}")
    expect("another algorithm" not in text and "library-kernel" not in text, f"a fault in a grouped product: {text}")


def check_changed_bounds(folder):
    """Bounds that the host has read are read again where an op has written them."""
    results = []
    for bounds in ("%others", "%changed", "%offs"):
        graph = folder / "changed.txt"
        graph.write_text(CHANGED_GROUPS.format(bounds=bounds))
        code, output, errors = run("run", graph, "--ranks", 1, "--device", "emulated", "--math", "native", "--json")
        expect(code == 0, f"changed bounds: exit {code}: {errors}")
        results.append(json.loads(output)["ranks"][0]["results"])
    expect(results[0] == results[1] == results[2], f"changed bounds: {results}")
    expect(results[0][0]["hash"] != results[0][1]["hash"], "the bounds make no difference")


def check_first_fault(folder):
    code, output, errors = run("run", folder / "faults.txt", "--ranks", 1, "--device", "emulated", "--math", "native")
    expect(code != 0 and "%q = " in output + errors, f"the first fault: exit {code}: {output}{errors}")
    expect("offs must ascend" not in output + errors, f"the first fault: exit {code}: {output}{errors}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        for file, graph in (
            ("whole", WHOLE),
            ("parts", PARTS.format(second="%x1")),
            ("wrong", PARTS.format(second="%x0")),
            ("groups", GROUPS.format(operand="%x")),
            ("wrong_groups", GROUPS.format(operand="%y")),
            ("faults", FAULTS),
            ("sum", SUM),
            ("sum_of_parts", SUM_OF_PARTS),
        ):
            (place / f"{file}.txt").write_text(graph)
        check_refusals(place)
        check_run(place)
        check_who_multiplies(place)
        check_library_names(place)
        check_graphs(place)
        check_rows(place)
        check_sums(place)
        check_groups(place)
        check_changed_bounds(place)
        check_first_fault(place)
    print("native math: all as expected")
