"""torchtitan's entry with the pass pipeline `epweave` registered; everything else is torchtitan's.

    torchrun --nproc_per_node 8 -m epweave.train --module MODULE --config CONFIG --compile.pass_pipeline epweave

in place of `-m torchtitan.train`. What the pipeline does, and what it reads: `epweave.torchtitan`.
"""
from __future__ import annotations


def main() -> None:
    import epweave.torchtitan  # noqa: F401  registers the pipeline
    from torchtitan.train import main as train
    train()


if __name__ == "__main__":
    main()
