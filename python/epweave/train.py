"""torchtitan's entry with the pass pipeline `epweave` registered; everything else is torchtitan's.

    torchrun --nproc_per_node 8 -m epweave.train --module MODULE --config CONFIG --compile.pass_pipeline epweave

in place of `-m torchtitan.train`. What the pipeline does, and what it reads: `epweave.torchtitan`. A name that no
pipeline has is refused, where torchtitan takes its default without a word.
"""
from __future__ import annotations

from typing import Any


def refuse_unknown_pipelines() -> None:
    """Stops a run whose pipeline nobody registered, when it is first looked up."""
    from torchtitan.experiments.graph_trainer import trainer
    take_default = trainer.construct_default_graph_passes

    def construct(traced: Any, config: Any, **options: Any) -> Any:
        name, known = config.compile.pass_pipeline, {"default", *trainer.PASS_PIPELINE_REGISTRY}
        if name not in known:
            raise ValueError(f"--compile.pass_pipeline: there is no pipeline {name!r}; there are {', '.join(sorted(known))}")
        return take_default(traced, config, **options)

    trainer.construct_default_graph_passes = construct


def main() -> None:
    import epweave.torchtitan  # noqa: F401  registers the pipeline
    from torchtitan.train import main as train
    refuse_unknown_pipelines()
    train()


if __name__ == "__main__":
    main()
