#!/usr/bin/env python3
"""Carry training graphs between PyTorch and the epweave graph file.

This is the package `epweave` (python/ here, or installed with pip) under the name and interface of the
single file that it was. As a module:

    epweave_fx.export(graph_module, path, ...)   torch.fx.GraphModule -> graph file
    epweave_fx.load(path, device=None)           graph file -> torch.fx.GraphModule
    epweave_fx.create_process_groups(module)     make the groups that passes added to its table
    epweave_fx.read_file(path)                   graph file -> File message
    epweave_fx.write_file(message, path)         File message -> graph file

As a command: `epweave_fx.py --help`. It needs the Python package `protobuf`.
"""
import os
import sys

_SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "python")
if os.path.isdir(os.path.join(_SOURCE, "epweave")):
    sys.path.insert(0, _SOURCE)  # of this checkout, whatever is installed

try:
    from epweave.fx import *  # noqa: E402, F401, F403
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("epweave", "google"):
        raise
    sys.exit(f"epweave_fx: the Python package '{'protobuf' if error.name != 'epweave' else 'epweave'}' is not there;"
             " `pip install` it, or on Debian the package python3-protobuf")
from epweave.fx import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
