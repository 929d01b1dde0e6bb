#!/usr/bin/env python3
"""Registers, spills, occupancy and instructions of the GPU's kernels, read from libepweave_cuda.so without a GPU.

    scripts/dev/device_code.py LIB --nvcc 13.0.88            the table of docs/gpu_kernels.md
    scripts/dev/device_code.py LIB --nvcc 13.0.88 --check    the limits below hold, and that table is the one in docs/gpu_kernels.md; of
                                                             another nvcc than there only the limits are looked at

The tools are cuobjdump and nvdisasm, of CUDA or of `pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`: in the PATH, beside
nvcc, in Python's packages (those of PyTorch for CUDA hold both, in triton), in those of build/venv, which scripts/test.sh --with-torch
makes, or where EPWEAVE_CUDA_TOOLS says (a folder).

Counted are the instructions of the loop over the reduced index, as they lie in the machine code, for the fused multiply-adds of a
whole chunk. So both ways to load operands count (16 bytes at once, or element by element), of which a thread takes one; the loop
over the steps of a last, shorter chunk does not.
Exit codes: 0 fine, 1 a limit or the table does not hold, 2 usage or a library that cannot be read, 77 no cuobjdump or nvdisasm.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/gpu_kernels.md"
START, END = "<!-- device_code.py -->\n", "<!-- end of device_code.py -->\n"

# sm_90, of CUDA's programming guide: what a multiprocessor has, and in what pieces it is given out.
REGISTERS, REGISTER_UNIT, WARPS = 65536, 256, 64
SHARED, SHARED_UNIT, SHARED_OF_SYSTEM = 228 * 1024, 128, 1024  # bytes; the last of each block

DTYPES = {8: "bfloat16", 9: "float16", 10: "float32", 11: "float64"}  # math::Stored
TILES = {4: 64, 8: 128}
THREADS = 256
# Instructions for 1,024 fused multiply-adds. float16 is converted by integer arithmetic, which
# costs 250 of them; tiles of 64 are for products that are too small to fill the GPU. A
# multiprocessor has half as many units for float64: two multiply-adds take the time of four
# instructions. 64 chains in float64 leave room for one block.
LIMITS = {(128, "bfloat16"): 1400, (128, "float32"): 1400, (128, "float16"): 1600,
          (64, "bfloat16"): 1900, (64, "float32"): 1900, (64, "float16"): 2200, (128, "float64"): 1600, (64, "float64"): 2450}
LAYOUTS = ("NN", "NT", "TN")
# Of attention's products, that leave blocks out: the dtype is that of b.
COVERED, COVERED_DTYPES, COVERED_LAYOUTS = "float32 x ", ("bfloat16", "float32"), ("NN", "TN")
KINDS = [(dtype, layout) for dtype in ("bfloat16", "float32", "float16", "float64") for layout in LAYOUTS] + [
    (COVERED + dtype, layout) for dtype in COVERED_DTYPES for layout in COVERED_LAYOUTS]
LIMITS |= {(tile, COVERED + dtype): LIMITS[tile, dtype] + (0 if tile == 128 else 50)  # of which 64 is where chunks are
           for tile in TILES.values() for dtype in COVERED_DTYPES}
# What attention does with scores, beside its products: blocks of threads.
ROWS = ("WeighTask", "WeighBackwardTask", "DeltaTask")
# Attention on tensor cores: what a kernel makes, and of which rows and columns it holds a tile.
FUSED = {"outputs": (64, 64), "gradients of queries": (64, 32), "gradients of keys": (64, 32)}
FUSED_THREADS = 128


def fused_tile(what, depth):
    return (64, 16) if what == "gradients of keys" and depth > 128 else FUSED[what]


FUSED_KINDS = [(dtype, *widths) for dtype, widths in (("bfloat16", (64, 64)), ("bfloat16", (128, 128)), ("bfloat16", (192, 128)),
                                                      ("float16", (192, 128)))]
# Kernels that address or index what they hold, which is on the stack then: no registers are spilled
# (ptxas would say so, and the build would end: --warn-on-spills).
WITH_STACK = {"MapTask<1>": "MapTaskILi1E", "CoordinatesTask": "CoordinatesTask", "PackProgramTask": "PackProgramTask",
              "TriangleTask": "TriangleTask"}


def find_tool(name):
    folders = [os.environ.get("EPWEAVE_CUDA_TOOLS"), *os.environ.get("PATH", "").split(os.pathsep), "/usr/local/cuda/bin"]
    for packages in (pathlib.Path(sysconfig.get_paths()["purelib"]), *ROOT.glob("build/venv/lib/python*/site-packages")):
        folders += [str(folder) for pattern in ("nvidia/cu*/bin", "triton/backends/nvidia/bin") for folder in packages.glob(pattern)]
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))


def run(tool, *args, folder):
    env = dict(os.environ, PATH=os.pathsep.join([folder, os.environ.get("PATH", "")]))  # cuobjdump calls nvdisasm
    done = subprocess.run([tool, *map(str, args)], capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"device_code.py: {tool} {' '.join(map(str, args))}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def read_resources(text):
    """{kernel: (registers, bytes of stack, bytes of shared memory)}"""
    found = {}
    for name, registers, stack, shared in re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", text):
        found[name] = int(registers), int(stack), int(shared)
    return found


def read_code(text):
    """{kernel: [(address, instruction)]}"""
    kernels, code = {}, None
    for line in text.splitlines():
        if match := re.search(r"Function : (\S+)", line):
            code = kernels.setdefault(match[1], [])
        elif code is not None and (match := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+([^;]*);", line)):
            code.append((int(match[1], 16), match[2].strip()))
    return kernels


def count_loop(code):
    """(instructions, fused multiply-adds) of the loop with the most multiply-adds, without the loops inside it; None if no loop
    has any."""
    loops = []
    for address, text in code:
        match = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)
        if match and int(match[1], 16) < address:
            loops.append((int(match[1], 16), address))

    def inside(loop):
        inner = [other for other in loops if other != loop and loop[0] <= other[0] and other[1] <= loop[1]]
        return [text for address, text in code if loop[0] <= address <= loop[1]
                and not any(first <= address <= last for first, last in inner)]

    bodies = [inside(loop) for loop in loops]
    def count_fused(body):
        return sum(re.search("[FD]FMA", text) is not None for text in body)
    best = max(bodies, key=count_fused, default=[])
    fused = count_fused(best)
    return (len(best), fused) if fused else None


def count_blocks(registers, shared, threads):
    """Blocks that a multiprocessor holds at once."""
    warps = threads // 32
    per_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // per_warp // warps
    by_shared = SHARED // (-(-shared // SHARED_UNIT) * SHARED_UNIT + SHARED_OF_SYSTEM)
    return min(by_registers, by_shared, WARPS // warps)


def read_products(resources, kernels):
    """{(tile, dtype, layout): (registers, shared, blocks, instructions, multiply-adds)}"""
    rows = {}
    for name, code in kernels.items():
        match = re.search(r"(Tiled|Covered)MatmulTask\w*?StoredE(\d+)E.*?AlongE(\d)E(?:LS\d*_|L\w+AlongE)(\d)ELi(\d)E", name)
        if not match:
            continue
        dtype, a, b, each = map(int, match.groups()[1:])
        prefix = COVERED if match[1] == "Covered" else ""
        layout = {(0, 1): "NN", (0, 0): "NT", (1, 1): "TN"}[a, b]
        registers, _, shared = resources[name]
        counted = count_loop(code)
        if counted is None:
            sys.exit(f"device_code.py: no loop with multiply-adds in {name}")
        rows[TILES[each], prefix + DTYPES[dtype], layout] = (registers, shared, count_blocks(registers, shared, THREADS), *counted)
    return rows


def read_fused(resources, kernels):
    """{(what, dtype, depth, value depth): (registers, shared, blocks, products of tensor cores in the code)}"""
    rows = {}
    for name, code in kernels.items():
        match = re.search(r"Fused(Forward|Gradient)TaskI\w*?StoredE(\d+)ELi(\d+)ELi(\d+)E(?:\w*?GradientsOfE(\d))?", name)
        if not match:
            continue
        dtype, depth, value_depth = map(int, match.groups()[1:4])
        what = list(FUSED)[0 if match[1] == "Forward" else 1 + int(match[5])]
        first, second = fused_tile(what, depth)
        # Given at the launch, beside 128 floats at most: rows of a tile and of its columns, each of
        # them 16 bytes more than it is wide.
        shared = 2 * ((first + second) * (depth + 8) + (second if what == "outputs" else first + second) * (value_depth + 8))
        registers = resources[name][0]
        rows[what, DTYPES[dtype], depth, value_depth] = (registers, shared, count_blocks(registers, shared, FUSED_THREADS),
                                                         sum("HMMA" in text for _, text in code))
    return rows


def count_fused_products(what, depth, value_depth):
    """Of 16 x 8 x 16, as the loops are unrolled: two steps of the products of rows with rows, all of those of weights."""
    _, columns = fused_tile(what, depth)
    if what == "outputs":
        return 2 * columns // 8 + columns // 16 * value_depth // 8
    return 4 * columns // 8 + columns // 16 * (depth + (value_depth if what == "gradients of keys" else 0)) // 8


def version_line(nvcc):
    return f"By nvcc {nvcc} for sm_90:"


def write_table(rows, of_attention, resources, nvcc):
    lines = [version_line(nvcc), "",
             "| tile | dtype | layout | registers | shared memory, KiB | threads on a multiprocessor | instructions for 1,024 multiply-adds |",
             "|---|---|---|---|---|---|---|"]
    for tile in (128, 64):
        for dtype, layout in KINDS:
            registers, shared, blocks, instructions, fused = rows[tile, dtype, layout]
            lines.append(f"| {tile} | {dtype} | {layout} | {registers} | {shared / 1024:.1f} | {blocks * THREADS} of 2048 | "
                         f"{instructions * 1024 / fused:,.0f} |")
    of_rows = []
    for task in ROWS:
        registers, _, shared = next(found for name, found in resources.items() if re.search(rf"\d{task}(?:If)?E", name))
        of_rows.append(f"`{task}` {registers} ({count_blocks(registers, shared, THREADS) * THREADS})")
    lines += ["", "Registers, and threads on a multiprocessor, of what attention does with rows of scores: " + ", ".join(of_rows) + "."]
    lines += ["", "Attention on tensor cores (native math), by blocks of 128 threads:", "",
              "| makes | dtype | widths | registers | shared memory, KiB | threads on a multiprocessor |", "|---|---|---|---|---|---|"]
    for what in FUSED:
        for dtype, depth, value_depth in FUSED_KINDS:
            registers, shared, blocks, _ = of_attention[what, dtype, depth, value_depth]
            lines.append(f"| {what} | {dtype} | {depth}, {value_depth} | {registers} | {shared / 1024:.1f} | "
                         f"{blocks * FUSED_THREADS} of 2048 |")
    most = max(registers for registers, _, _ in resources.values())
    lines += ["", f"{len(resources)} kernels in all: at most {most} registers, none spilled. A stack, for what they address, have "
              f"{', '.join(f'`{name}`' for name in sorted(WITH_STACK))}."]
    return "\n".join(lines) + "\n"


def find_narrow(kernels):
    """Maps that read or write no vectors of elements: nvcc merges a vector's store with one of the same elements one by one."""
    narrow = []
    for name, code in kernels.items():
        vectors = {match[1] for _, text in code if (match := re.search(r"\b(LDG|STG)\.E\.(?:64|128)\b", text))}
        if "VectorMapTask" in name and vectors != {"LDG", "STG"}:
            narrow.append(f"{name}: no vectors of 8 or 16 bytes by {' and '.join(sorted({'LDG', 'STG'} - vectors))}")
    return narrow


def find_fused_problems(fused):
    problems = []
    for what in FUSED:
        for kind in FUSED_KINDS:
            if (what, *kind) not in fused:
                problems.append(f"no attention on tensor cores, {what}, of {kind}")
                continue
            _, _, blocks, products = fused[(what, *kind)]
            expected = count_fused_products(what, *kind[1:])
            if blocks < 2:
                problems.append(f"attention, {what}, of {kind}: {blocks} blocks on a multiprocessor, 2 are needed")
            if products < expected:
                problems.append(f"attention, {what}, of {kind}: {products} products of tensor cores, {expected} are in its loops")
    return problems


def find_problems(rows, resources):
    problems = [f"{name}: {stack} bytes of stack (spilled registers, or arrays that are not in registers)"
                for name, (_, stack, _) in resources.items() if stack and not any(part in name for part in WITH_STACK.values())]
    for (tile, dtype), limit in LIMITS.items():
        for layout in COVERED_LAYOUTS if dtype.startswith(COVERED) else LAYOUTS:
            if (tile, dtype, layout) not in rows:
                problems.append(f"no product of {dtype}, {layout}, by tiles of {tile}")
                continue
            registers, _, blocks, instructions, fused = rows[tile, dtype, layout]
            what = f"product of {dtype}, {layout}, by tiles of {tile}"
            needed, steps = 1 if (tile, dtype) == (128, "float64") else 2, 8 if dtype == "float64" else 16
            if blocks < needed:
                problems.append(f"{what}: {registers} registers: {blocks} blocks on a multiprocessor, {needed} are needed")
            if fused != tile * tile // THREADS * steps:
                problems.append(f"{what}: {fused} multiply-adds in its loop, a chunk has {tile * tile // THREADS * steps}")
            elif instructions * 1024 > limit * fused:
                problems.append(f"{what}: {instructions * 1024 / fused:.0f} instructions for 1,024 multiply-adds, at most {limit}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--nvcc", required=True, metavar="VERSION", help="the one that compiled the library")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.library.is_file():
        parser.error(f"{args.library}: no such file: build the target epweave_cuda")
    tool, disassembler = find_tool("cuobjdump"), find_tool("nvdisasm")
    if not tool or not disassembler:
        print("device_code.py: no cuobjdump or nvdisasm: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
        return 77
    folder = str(pathlib.Path(disassembler).parent)
    resources = read_resources(run(tool, "-res-usage", args.library, folder=folder))
    kernels = read_code(run(tool, "-sass", args.library, folder=folder))
    if not resources or resources.keys() != kernels.keys():
        print(f"device_code.py: {args.library}: {len(resources)} kernels with resources, {len(kernels)} with code", file=sys.stderr)
        return 2
    rows, fused = read_products(resources, kernels), read_fused(resources, kernels)
    problems = find_problems(rows, resources) + find_fused_problems(fused) + find_narrow(kernels)
    if not problems:
        table = write_table(rows, fused, resources, args.nvcc)
        document = DOCUMENT.read_text() if args.check else ""
        if not args.check:
            print(table, end="")
        elif document.count(START) != 1 or START + table + END not in document:
            if document.count(START) == 1 and START + version_line(args.nvcc) not in document:
                print(f"the limits hold; the table of docs/gpu_kernels.md is of another nvcc than {args.nvcc}")
            else:
                problems.append(f"docs/gpu_kernels.md: the table between '{START.strip()}' and '{END.strip()}' is not that of this library:\n{table}")
    for problem in problems:
        print(f"device_code.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
