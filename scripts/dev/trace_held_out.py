#!/usr/bin/env python3
"""Trace the graphs of overlap_table.py that are not kept in a folder, without a GPU.

    python scripts/dev/trace_held_out.py --tools DIR --out DIR [NAME ...]

--tools is the folder of the specification's trace_graphs.py. Needs torch 2.15 and torchtitan 0.3.0. Names: dsv3_16b_ep8_block
(DeepSeek-V3 16B behind torchtitan's chunking of whole blocks and its buckets), llama3_405b_fsdp64_tp8 (in bf16: torchtitan's own
configuration has float8 products, for which it needs torchao). One core takes 10 to 20 minutes for each.
"""
import argparse
import pathlib
import subprocess
import sys

STAGES = {"dsv3_16b_ep8_block": "3_pg,4_bucket", "llama3_405b_fsdp64_tp8": "1b_remat"}


def trace(tools, out, name):
    sys.path.insert(0, str(tools))
    import trace_graphs
    from torchtitan.models.llama3 import config_registry

    make = config_registry.model_registry
    config_registry.model_registry = lambda flavor, converters=None, **rest: make(flavor, **rest)
    graphs = trace_graphs.VARIANTS
    graphs["dsv3_16b_ep8_block"] = {**graphs["dsv3_16b_ep8"], "module_fqn": "layers.*"}
    trace_graphs.run_variant(name, str(out), STAGES[name].split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--tools", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    names = options.names or list(STAGES)
    if unknown := [name for name in names if name not in STAGES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(STAGES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    if len(names) == 1:
        trace(options.tools, options.out, names[0])
        return 0
    # One process each: the fake process group is global.
    words = [sys.executable, __file__, "--tools", options.tools, "--out", options.out]
    return max(subprocess.run([*map(str, words), name], check=False).returncode for name in names)


if __name__ == "__main__":
    sys.exit(main())
