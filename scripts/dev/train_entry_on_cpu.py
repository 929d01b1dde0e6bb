#!/usr/bin/env python3
"""Train by the entry of a torchtitan run, `python -m torchtitan.train`, on CPU ranks with gloo, once for each pipeline, and compare.

    scripts/dev/train_entry_on_cpu.py --model deepseek_v3 --ep 2 --rewrite 'ep-overlap{symbolize=yes}' --tolerance 1e-3

`--compile.pass_pipeline epweave` is all that is said of us: the entry point of an installed package is made as pip makes it.
With `--entry epweave.train` there is none. Everything else is torchtitan's: parsing of the command line, data loader, optimizer, checkpointer, metrics, the loop. What
stops it on a CPU, each found by running it, gets a stand-in:

  - it takes its device from a module that has a GPU's functions; `torch.cpu` lacks some of them (their results are
    for the log alone);
  - the debug models' tokenizer and texts are in torchtitan's repository, not in its package: both are made here;
  - FlexAttention has no backward on the CPU: the models attend by SDPA.

Prints loss and gradient norm of each step as torchtitan logs them, and how
far the pipelines are apart: a chunked gradient is a sum of parts, so that its last bits are others.
Exit codes: 0 all pipelines within --tolerance of the first, 1 they are not or a run fails, 2 usage.
"""
import argparse
import json
import math
import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ("llama3", "deepseek_v3", "qwen3")
CONFIG = """\
import importlib

MODEL, FLAVOR = {model!r}, "debugmodel{moe}"


def debug():
    package = importlib.import_module("torchtitan.experiments.graph_trainer." + MODEL)
    registry = importlib.import_module(package.__name__ + ".config_registry")
    config = getattr(registry, "graph_trainer_" + MODEL + "_" + FLAVOR)()
    config.model_spec = package.model_registry(FLAVOR, attn_backend="sdpa")
    return config
"""
STEP = re.compile(r"step:\s*(\d+).*?loss:\s*(\S+).*?grad_norm:\s*(\S+)")
COLOR = re.compile(r"\x1b\[[0-9;]*m")
VOCABULARY = 2000  # of the debug models' 2,048


def make_assets(folder: pathlib.Path, model: str) -> None:
    """A tokenizer, texts, and the module that `--module` names."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    texts = sorted(str(path) for path in (ROOT / "docs").glob("*.md"))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], show_progress=False,
                                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}))
    with open(folder / "texts.jsonl", "w", encoding="utf-8") as f:
        for path in texts:
            f.write(json.dumps({"text": pathlib.Path(path).read_text(encoding="utf-8")}) + "\n")
    (folder / "on_cpu").mkdir()
    (folder / "on_cpu/__init__.py").touch()
    (folder / "on_cpu/config_registry.py").write_text(CONFIG.format(model=model, moe="_moe" if model == "qwen3" else ""))


def install_entry_points(folder: pathlib.Path) -> None:
    """What pip writes of pyproject.toml, which `import torch` reads."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    place = folder / "site/epweave-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: epweave\nVersion: 0\n", encoding="utf-8")
    rows = [f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in points.items()) for group, points in groups.items()]
    (place / "entry_points.txt").write_text("".join(rows), encoding="utf-8")


def use_cpu(folder: pathlib.Path) -> None:
    """The stand-ins, in the process of a rank."""
    import torch
    from torchtitan.tools import utils

    class Properties:
        total_memory = 1 << 30

    for name, result in {"get_device_name": "cpu", "get_device_properties": Properties, "reset_peak_memory_stats": None,
                         "empty_cache": None, "memory_stats": {}, "get_device_capability": (0, 0), "current_device": 0}.items():
        setattr(torch.cpu, name, lambda *_, result=result: result)
    utils.device_type, utils.device_module = "cpu", torch.cpu  # before others take them from there
    import torchtitan.components.metrics
    import torchtitan.distributed.utils
    for module in (torchtitan.components.metrics, torchtitan.distributed.utils):
        module.device_type, module.device_module = "cpu", torch.cpu
    import datasets
    from torchtitan.hf_datasets.text_datasets import DATASETS
    DATASETS["c4_test"].path = str(folder / "texts.jsonl")
    DATASETS["c4_test"].loader = lambda path: datasets.load_dataset(
        "json", data_files=path, split="train", cache_dir=str(folder / "cache"))


def run_rank(folder: pathlib.Path, entry: str, arguments: list[str]) -> None:
    use_cpu(folder)
    sys.argv[1:] = arguments
    runpy.run_module(entry, run_name="__main__", alter_sys=True)


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return str(s.getsockname()[1])


def train(pipeline: str, folder: pathlib.Path, options) -> list[tuple[str, str, str]]:
    """Step, loss and gradient norm of each step, as rank 0 logs them."""
    words = ["--module", "on_cpu", "--config", "debug", "--hf_assets_path", str(folder), "--dump_folder", str(folder / pipeline),
             "--training.steps", str(options.steps), "--training.seq_len", str(options.sequence),
             "--training.local_batch_size", str(options.batch), "--training.disable_cuda_graphs",
             "--training.global_batch_size", str(options.batch * options.accumulate * options.world // options.tp),
             "--parallelism.tensor_parallel_degree", str(options.tp), "--parallelism.expert_parallel_degree", str(options.ep),
             "--debug.seed", "0"]
    words += ["--compile.no-enable_passes"] if pipeline == "none" else ["--compile.pass_pipeline", pipeline]
    port = free_port()
    ranks, logs = [], []
    for rank in range(options.world):
        logs.append(open(folder / f"{pipeline}.{rank}.log", "w+", encoding="utf-8"))
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(options.world),
                       "MASTER_ADDR": "localhost", "MASTER_PORT": port, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                       "EPWEAVE_PIPELINE": options.rewrite, "PYTHONPATH": f"{ROOT / 'python'}:{folder / 'site'}:{folder}"}
        ranks.append(subprocess.Popen([sys.executable, __file__, "--rank-in", str(folder), options.entry, *words], env=environment,
                                      stdout=logs[-1], stderr=subprocess.STDOUT, cwd=folder))
    codes = [rank.wait() for rank in ranks]
    said = []
    for log in logs:
        log.seek(0)
        said.append(COLOR.sub("", log.read()))
        log.close()
    for rank, code in enumerate(codes):
        if code:
            raise SystemExit(f"pipeline {pipeline}: rank {rank} ended with exit code {code}:\n{said[rank][-3000:]}")
    if pipeline == "epweave" and "epweave_rewrite_pass" not in said[0]:
        raise SystemExit(f"torchtitan took other passes than epweave's:\n{said[0][-3000:]}")
    return STEP.findall(said[0])


def main(options) -> int:
    found = {}
    with tempfile.TemporaryDirectory(prefix="epweave-entry-") as name:
        folder = pathlib.Path(name)
        make_assets(folder, options.model)
        if options.entry == "torchtitan.train":
            install_entry_points(folder)
        for pipeline in options.compare.split(","):
            found[pipeline] = train(pipeline, folder, options)
            for step, loss, norm in found[pipeline]:
                print(f"{pipeline:10} step {step}  loss {loss}  grad_norm {norm}", flush=True)
            if len(found[pipeline]) != options.steps:
                raise SystemExit(f"pipeline {pipeline}: {len(found[pipeline])} of {options.steps} steps were logged")
    first, *others = [[float(number) for _, *numbers in steps for number in numbers] for steps in found.values()]
    if not all(map(math.isfinite, first)):
        raise SystemExit("a loss or gradient norm is not finite")
    apart = max((abs(a - b) / abs(a) if math.isfinite(b) else math.inf for other in others for a, b in zip(first, other)), default=0)
    print(f"losses and gradient norms are at most {apart:.1g} apart (relative)" if apart else "the same in every digit")
    return 0 if apart <= options.tolerance else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-in"]:
        run_rank(pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
        sys.exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama3")
    parser.add_argument("--entry", choices=("torchtitan.train", "epweave.train"), default="torchtitan.train")
    for option, default in (("world", 2), ("tp", 1), ("ep", 1), ("steps", 3), ("sequence", 64), ("batch", 2), ("accumulate", 1)):
        parser.add_argument(f"--{option}", type=int, default=default, metavar="N")
    parser.add_argument("--rewrite", default="dce,canonicalize,dedup-unshard", metavar="PIPELINE", help="what epweave runs")
    parser.add_argument("--tolerance", type=float, default=0, metavar="X", help="relative, of losses and norms")
    parser.add_argument("--compare", default="none,epweave", metavar="LIST", help="pipelines of torchtitan's registry, or none")
    sys.exit(main(parser.parse_args()))
