"""torchtitan's entry with the pass pipeline `epweave` registered; everything else is torchtitan's.

    torchrun --nproc_per_node 8 -m epweave.train --module MODULE --config CONFIG --compile.pass_pipeline epweave

in place of `-m torchtitan.train`, which does the same where the package is installed by pip (`epweave_autoload`). What the pipeline does, and what it reads: `epweave.torchtitan`. A name that no
pipeline has is refused, where torchtitan takes its default without a word.
"""
from __future__ import annotations

import sys
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


def lacks_model(arguments: list[str]) -> bool:
    """Whether --module or --config is not among the arguments, without which torchtitan has nothing to train."""
    given = {argument.partition("=")[0] for argument in arguments}
    return not {"--module", "--config"} <= given


def main() -> None:
    if lacks_model(sys.argv[1:]):
        asks = bool({"-h", "--help"} & set(sys.argv[1:]))
        message = "" if asks else "\nepweave.train: error: --module and --config are required: `--module llama3 --config llama3_debugmodel`\n"
        print(__doc__.strip() + message, file=sys.stdout if asks else sys.stderr)
        sys.exit(0 if asks else 2)
    import epweave.torchtitan  # noqa: F401  registers the pipeline
    from torchtitan.train import main as train
    refuse_unknown_pipelines()
    train()


if __name__ == "__main__":
    main()
