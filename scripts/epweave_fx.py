#!/usr/bin/env python3
"""Carry training graphs between PyTorch and the epweave graph file.

This is the package `epweave` (python/ here, or installed with pip) under the name and interface of the
single file that it was. As a module:

    epweave_fx.export(graph_module, path, ...)   torch.fx.GraphModule -> graph file
    epweave_fx.load(path, device=None)           graph file -> torch.fx.GraphModule; with rank=, that rank's
    epweave_fx.load_artifact(path, config)       artifact -> what torchtitan's run_traced needs
    epweave_fx.create_process_groups(module)     make the groups that passes added to its table
    epweave_fx.read_file(path)                   graph file -> File message
    epweave_fx.write_file(message, path)         File message -> graph file

As a command: `epweave_fx.py --help`. It needs the Python package `protobuf`.
"""
import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
for _place in ("../python", "../../lib/python3/dist-packages"):  # of this checkout or installation
    if os.path.isfile(os.path.join(_HERE, _place, "epweave", "__init__.py")):
        sys.path.insert(0, os.path.normpath(os.path.join(_HERE, _place)))
        break

try:
    import google.protobuf  # noqa: F401
except ModuleNotFoundError:
    sys.path.append("/usr/lib/python3/dist-packages")  # another Python than Debian's may use Debian's protobuf

try:
    from epweave.fx import *  # noqa: F401, F403
    from epweave.fx import main
except ModuleNotFoundError as error:
    if __name__ != "__main__" or (error.name or "").partition(".")[0] not in ("epweave", "google"):
        raise
    print(f"epweave_fx: {error}; install it with pip: `pip install protobuf`, on Debian the package python3-protobuf",
          file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main())
