"""What makes `--compile.pass_pipeline epweave` enough for torchtitan: nothing in a run imports `epweave.torchtitan`.

`import torch` calls the entry points of the group `torch.backends` that installed packages have; `watch` is this
package's (pyproject.toml). It waits for torchtitan's registry of pass pipelines, and does nothing in a process that
imports none. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns the group off. A package of its own, as each process that imports
torch imports it: it imports nothing of epweave before a run asks for the pipeline.
"""
from __future__ import annotations

import importlib.abc
import importlib.util
import sys

REGISTRY = "torchtitan.experiments.graph_trainer.registry"


def register(registry) -> None:
    """Makes the pipeline and the hook `epweave` known; `epweave.torchtitan` is imported where one of them is called."""
    def construct_passes(*args, **options):
        import epweave.torchtitan
        return epweave.torchtitan.construct_passes(*args, **options)

    def remember_trainer(trainer):
        import epweave.torchtitan
        epweave.torchtitan.remember_trainer(trainer)

    registry.register_pass_pipeline("epweave")(construct_passes)
    registry.register_post_init_hook("epweave")(remember_trainer)


class _Watcher(importlib.abc.MetaPathFinder):
    """Finds nothing itself: torchtitan's registry, as others find it, is told of the pipeline when it has been executed."""

    def find_spec(self, name, path=None, target=None):
        if name != REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                register(module)

            spec.loader.exec_module = execute_and_register
        return spec


def watch() -> None:
    """The entry point."""
    if REGISTRY in sys.modules:
        register(sys.modules[REGISTRY])
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())
