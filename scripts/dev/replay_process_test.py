#!/usr/bin/env python3
"""`epweave-replay run --transport nccl`: ranks as processes, without GPUs.

NCCL's and the GPU's places are taken as replay_processes.py says; everything else is what runs on GPUs. With
--graph FILE that graph of 4 ranks is run too, on all its ranks here and as processes.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from replay_processes import CLEAN, finish, free_port, start_command, torchrun, write_tensors
from replay_tool import REPLAY, expect

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(arguments, variables):
    return start_command("run", [*arguments, "--device", "emulated"], variables)


def run_ranks(ranks, *arguments, **variables):
    port = free_port()
    return finish([start(arguments, {**torchrun(rank, ranks, port), **variables}) for rank in range(ranks)])


def run_here(*arguments):
    result = subprocess.run(
        [REPLAY, "run", *map(str, arguments)], capture_output=True, text=True, check=False, env=CLEAN
    )
    expect(result.returncode == 0, f"on the CPU: {result.stderr}")
    return result.stdout


def hashes(report):
    return [[(r["name"], r["dtype"], r["sizes"], r["hash"]) for r in rank["results"]] for rank in report["ranks"]]


# --- graphs ---

GROUPS = "group 1 ranks=[0, 1, 2, 3]\ngroup 2 ranks=[0, 1] priority=high\ngroup 3 ranks=[0, 2]\n"
SIZES = {"1": 4, "2": 2, "3": 2}


def collectives_graph():
    """Every kind of collective and reduction, dtypes, and sizes that do not divide, on three kinds of groups."""
    nodes, outputs = [], []

    def launch(name, call, shape):
        nodes.append(f"  %{name} = _c10d_functional.{call} : {shape}")
        nodes.append(f"  %{name}_w = _c10d_functional.wait_tensor.default(%{name}) : {shape}")
        outputs.append(f"%{name}_w")

    inputs = {"f32": 7, "bf16": 13, "f16": 3, "f64": 9, "i64": 6, "i32": 1}
    for dtype, count in inputs.items():
        nodes.append(f"  %x_{dtype} = placeholder : {dtype}[{count}] role=user which=x_{dtype}")
    nodes.append("  %m = placeholder : bf16[8, 3] role=user which=m")
    for dtype, count in inputs.items():
        for group in SIZES:
            for kind in ("sum", "avg", "max", "min", "product"):
                if dtype.startswith("i") and kind == "avg":
                    continue
                name = f"r_{dtype}_{group}_{kind}"
                launch(name, f'all_reduce.default(%x_{dtype}, "{kind}", "{group}")', f"{dtype}[{count}]")
    for group, size in SIZES.items():
        rows = 8 // size
        launch(f"s_{group}", f'reduce_scatter_tensor.default(%m, "sum", {size}, "{group}")', f"bf16[{rows}, 3]")
        launch(f"g_{group}", f'all_gather_into_tensor.default(%s_{group}_w, {size}, "{group}")', "bf16[8, 3]")
        splits = [rows] * size
        launch(f"a_{group}", f'all_to_all_single.default(%g_{group}_w, {splits}, {splits}, "{group}")', "bf16[8, 3]")
    launch("b", 'broadcast.default(%m, 2, "1")', "bf16[8, 3]")
    nodes.append("  %t = aten.t.default(%m) : bf16[3, 8]{1, 3}")
    launch("gt", 'all_gather_into_tensor.default(%t, 4, "1")', "bf16[12, 8]")
    return "epweave text 1\n" + GROUPS + "graph\n" + "\n".join(nodes) + f"\n  output([{', '.join(outputs)}])\n"


RECIPE = {"inputs": [{"name": "x_i*", "make": "integers", "from": -9, "below": 50}]}

# Rows go where the data say and come back, with compute between launch and wait.
EXCHANGE = (
    "epweave text 1\n"
    + GROUPS
    + "".join(f"symbol {kind}{i} range=[0, 64] unbacked\n" for kind in "sr" for i in range(4))
    + """graph
  %x = placeholder : f32[12, 3] role=user which=x
  %counts = placeholder : i64[4] role=user which=counts
  %ca = _c10d_functional.all_to_all_single.default(%counts, [1, 1, 1, 1], [1, 1, 1, 1], "1") : i64[4]
  %cw = _c10d_functional.wait_tensor.default(%ca) : i64[4]
"""
    + "".join(
        f"  %{kind}t{i} = aten.select.int(%{source}, 0, {i}) : i64[]\n"
        f"  %{kind}{i} = aten._local_scalar_dense.default(%{kind}t{i}) : SymInt({kind}{i}) bind({kind}{i})\n"
        for kind, source in (("s", "counts"), ("r", "cw"))
        for i in range(4)
    )
    + """  %e = _c10d_functional.all_to_all_single.default(%x, [%r0, %r1, %r2, %r3], [%s0, %s1, %s2, %s3], "1") : f32[r0 + r1 + r2 + r3, 3]
  %y = aten.mul.Tensor(%x, %x) : f32[12, 3]
  %yr = _c10d_functional.all_reduce.default(%y, "sum", "2") : f32[12, 3]
  %ew = _c10d_functional.wait_tensor.default(%e) : f32[r0 + r1 + r2 + r3, 3]
  %z = aten.mul.Tensor(%ew, %ew) : f32[r0 + r1 + r2 + r3, 3]
  %b = _c10d_functional.all_to_all_single.default(%z, [%s0, %s1, %s2, %s3], [%r0, %r1, %r2, %r3], "1") : f32[s0 + s1 + s2 + s3, 3]
  %yw = _c10d_functional.wait_tensor.default(%yr) : f32[12, 3]
  %bw = _c10d_functional.wait_tensor.default(%b) : f32[s0 + s1 + s2 + s3, 3]
  %o = aten.add.Tensor(%yw, %bw) : f32[12, 3]
  output([%o, %ew])
"""
)
# Row i: what rank i sends to each.
SPLITS = [[0, 12, 0, 0], [3, 3, 3, 3], [12, 0, 0, 0], [1, 0, 4, 7]]


def write_counts(path, splits):
    """A safetensors file with every rank's counts."""
    write_tensors(
        path, {f"rank{rank}/counts": ("I64", [4], struct.pack("<4q", *row)) for rank, row in enumerate(splits)}
    )


MISMATCH = """epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4] role=user which=x
  %e = _c10d_functional.all_to_all_single.default(%x, [2, 2], [1, 3], "7") : f32[4] @layers.0.moe
  %w = _c10d_functional.wait_tensor.default(%e) : f32[4]
  output([%w])
"""


class Files:
    def __init__(self, folder):
        self.folder = folder
        self.collectives = folder / "collectives.txt"
        self.collectives.write_text(collectives_graph())
        self.recipe = folder / "recipe.json"
        self.recipe.write_text(json.dumps(RECIPE))
        self.exchange = folder / "exchange.txt"
        self.exchange.write_text(EXCHANGE)
        self.counts = folder / "counts.safetensors"
        write_counts(self.counts, SPLITS)
        self.mismatch = folder / "mismatch.txt"
        self.mismatch.write_text(MISMATCH)


# --- the same bits ---


def check_bits(files):
    for arguments in ([files.collectives, "--recipe", files.recipe], [files.exchange, "--inputs", files.counts]):
        expected = json.loads(run_here(*arguments, "--json"))
        for extra in ([], ["--poison", "--jitter", 3]):
            reports = files.folder / "reports"
            reports.mkdir(exist_ok=True)
            results = run_ranks(4, *arguments, *extra, "--json", "--report-dir", reports, "--deadline", 30)
            expect(all(code == 0 for code, _, _ in results), f"{arguments}: {results}")
            expect(not any(output for _, output, _ in results[1:]), "only rank 0 prints")
            found = json.loads(results[0][1])
            expect(hashes(found) == hashes(expected), f"{arguments}: other bits than on the CPU")
            expect(len(hashes(found)) == 4 and len(hashes(found)[3]) > 1, "results of 4 ranks")
            check_report(found, [json.loads((reports / f"rank{r}.json").read_text()) for r in range(4)])
            shutil.rmtree(reports)


def check_library_sums(files):
    """NCCL's own sums: those of the stand-in go from the last rank to the first, and round at each step."""
    arguments = [files.collectives, "--recipe", files.recipe, "--json", "--deadline", 30]
    own = hashes(json.loads(run_here(*arguments)))
    first, second = (run_ranks(4, *arguments, *extra, "--nccl-native") for extra in ([], ["--poison", "--jitter", 5]))
    expect(all(code == 0 for code, _, _ in first + second), f"{first} {second}")
    merged = json.loads(first[0][1])
    found = hashes(merged)
    expect(found == hashes(json.loads(second[0][1])), "the library's sums: other bits the second time")
    listed = re.search(r"output\(\[(.*)\]\)", files.collectives.read_text())[1]
    names = [name.removeprefix("%").removesuffix("_w") for name in listed.split(", ")]
    expect([name for name, *_ in own[0]] == [f"output {i}" for i in range(len(names))], own[0])
    other = {names[i] for i in range(len(names)) if any(own[rank][i] != found[rank][i] for rank in range(4))}
    sums = {name for name in names if re.match(r"r_[fb]\w+_1_(sum|avg|product)$", name)}
    expect({"r_bf16_1_sum", "r_f16_1_avg", "r_f32_1_product"} <= other, f"sums of 4 ranks by the library: {other}")
    # What is computed of the reduce-scatter's rounded sums differs with it.
    behind = {name for name in names if re.match(r"[sga]_1$", name)}
    expect(other <= sums | behind, f"what no library adds up: {other - sums - behind}")
    environment = merged["environment"]
    expect(environment["sums"] == "NCCL's" and "what NCCL reduces: the same bits for" in environment["determinism"],
           environment)
    settings = {s["name"]: (s["found"], s["taken"]) for s in environment["nccl_settings"]}
    expect(settings["NCCL_ALGO"] == ("Ring", "Ring") and settings["NCCL_MIN_CTAS"] == ("8", "8"), settings)
    expect(settings["NCCL_NVLS_ENABLE"] == ("0", None), settings)  # not among those that the stand-in logs
    expect(environment["nccl_settings_are_pinned"] is True, environment)
    # Sums of small integers are exact in every order.
    exact = [*arguments, "--data", "integer"]
    results = run_ranks(4, *exact, "--nccl-native")
    expect(hashes(json.loads(results[0][1])) == hashes(json.loads(run_here(*exact))), "exact sums by the library")
    # All ranks or none; not of check, not without processes.
    port = free_port()
    pair = [files.folder / "pair.txt", "--deadline", 20]
    options = ["--nccl-native"], []
    results = finish([start([*pair, *options[rank]], torchrun(rank, 2, port)) for rank in range(2)])
    expect(all(code == 4 and "NCCL's sums" in errors for code, _, errors in results), f"on one rank: {results}")
    for command in (["run", pair[0]], ["check", pair[0], pair[0], "--transport", "nccl"]):
        refused = subprocess.run([REPLAY, *command, "--nccl-native", "--device", "emulated"], capture_output=True,
                                 text=True, check=False, env=CLEAN)
        expect(refused.returncode == 2 and "--nccl-native is " in refused.stderr, f"{command}: {refused}")


def check_log(files):
    """NCCL's log is read, and lies where nobody else can have put a link; nothing of it is left."""
    graph, temporary, target = files.folder / "alone.txt", files.folder / "temporary", files.folder / "target"
    graph.write_text("""epweave text 1
group 7 ranks=[0]
graph
  %x = placeholder : f32[4] role=user which=x
  %g = _c10d_functional.all_reduce.default(%x, "sum", "7") : f32[4]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4]
  output([%w])
""")
    temporary.mkdir()
    # The name that follows from the number of the process, which the shell has, too.
    link = f'ln -s {target} "$TMPDIR/epweave-nccl-$$.log"; exec "$0" "$@"'
    result = subprocess.run(
        ["sh", "-c", link, REPLAY, "run", graph, "--transport", "nccl", "--device", "emulated", "--rank", "0", "--world-size", "1",
         "--rendezvous", f"file:{files.folder / 'meeting'}", "--nccl-native", "--json"],
        capture_output=True, text=True, check=False, env={**CLEAN, "TMPDIR": str(temporary)})  # fmt: skip
    expect(result.returncode == 0, f"alone: {result}")
    settings = {s["name"]: s["taken"] for s in json.loads(result.stdout)["environment"]["nccl_settings"]}
    expect(settings["NCCL_ALGO"] == "Ring", settings)
    left = list(temporary.iterdir())
    expect(not target.exists() and len(left) == 1 and left[0].is_symlink(), f"a link was followed, or a log is left: {left}")


def check_graphs(files):
    """Stretches of compute as graphs, NCCL's work on its own streams between them. All ranks or none."""
    arguments = [files.exchange, "--inputs", files.counts, "--json", "--deadline", 30, "--repeat", 3, "--poison"]
    expected = json.loads(run_here(files.exchange, "--inputs", files.counts, "--json"))
    results = run_ranks(4, *arguments, "--cuda-graphs")
    expect(all(code == 0 for code, _, _ in results), f"graphs: {results}")
    found = json.loads(results[0][1])
    expect(hashes(found) == hashes(expected), "graphs: other bits than on the CPU")
    for rank in found["ranks"]:
        use = rank["cuda_graphs"]
        expect(use["replayed"] == use["instantiated"] > 0 and not use["interruptions"], use)
    port = free_port()
    options = ["--cuda-graphs"], []
    pair = [files.folder / "pair.txt", "--deadline", 20]
    results = finish([start([*pair, *options[rank]], torchrun(rank, 2, port)) for rank in range(2)])
    expect(all(code == 4 and "CUDA graphs" in errors for code, _, errors in results), f"graphs on one rank: {results}")


def check_report(merged, ranks):
    environment = merged["environment"]
    expect(environment["transport"] == "nccl" and environment["launcher"] == "torchrun", environment)
    expect(environment["nccl_loaded"] == environment["nccl_compiled"] == "2.28.9", environment)
    expect(environment["nccl_settings_are_pinned"] is True, environment)
    settings = {s["name"]: s["found"] for s in environment["nccl_settings"]}
    expect(settings == {"NCCL_LAUNCH_ORDER_IMPLICIT": "1"}, settings)  # NCCL adds nothing up: the rest is its own choice
    expect(environment["sums"] == "the documented order", environment)
    for rank, report in enumerate(ranks):
        expect(report["rank"] == rank and report["results"] == merged["ranks"][rank]["results"], "a rank's own report")
        expect(report["environment"]["device"]["name"] == "emulated by the CPU", report["environment"])


def check_overridden_setting(files):
    variables = {"NCCL_ALGO": "Tree", "NCCL_IB_DISABLE": "1"}
    moved = json.loads(run_ranks(2, files.folder / "pair.txt", "--json", **variables)[0][1])["environment"]
    expect(moved["nccl_settings_are_pinned"] is True, moved)  # of those that matter where nothing is added up
    expect([one["name"] for one in moved["nccl_other_settings"]] == ["NCCL_ALGO", "NCCL_IB_DISABLE"], moved)
    results = run_ranks(2, files.folder / "pair.txt", "--json", "--nccl-native", **variables)
    environment = json.loads(results[0][1])["environment"]
    expect(environment["nccl_settings_are_pinned"] is False and "settings of NCCL" in results[0][2], results)
    expect(environment["nccl_other_settings"] == [{"name": "NCCL_IB_DISABLE", "found": "1"}], environment)


def check_launchers(files):
    """Every launcher's variables, explicit options, and a file in place of a port."""
    graph = files.folder / "pair.txt"
    port = free_port()
    meeting = files.folder / "meeting"
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    expected = run_here(graph)
    starts = {
        "srun": lambda r: ([], {"SLURM_PROCID": r, "SLURM_NTASKS": 2, "SLURM_LOCALID": r, "SLURM_JOB_ID": port,
                                "SLURM_STEP_ID": 0, "SLURM_STEP_NODELIST": "127.0.0.[1-2]"}),
        "Open MPI": lambda r: ([], {"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": 2,
                                    "OMPI_COMM_WORLD_LOCAL_RANK": r, "OMPI_COMM_WORLD_LOCAL_SIZE": 2,
                                    "PMIX_NAMESPACE": f"job{port}"}),
        "MPICH": lambda r: ([], {"PMI_RANK": r, "PMI_SIZE": 2, "MPI_LOCALRANKID": r, **address}),
        "options": lambda r: (["--rank", r, "--world-size", 2, "--rendezvous", f"127.0.0.1:{port}"], {}),
        "file": lambda r: (["--rank", r, "--world-size", 2, "--rendezvous", f"file:{meeting}"], {}),
    }
    for name, of_rank in starts.items():
        # A file that an earlier run left: nobody is there.
        meeting.write_text(f"epweave rendezvous 2\nstale\n{free_port()}\n127.0.0.1\n")
        processes = []
        for rank in (1, 0):
            options, variables = of_rank(rank)
            processes.append(start([graph, "--deadline", 20, *options], variables))
            if rank == 1:
                time.sleep(0.2)  # it waits for rank 0
        results = finish(processes)
        expect(all(code == 0 for code, _, _ in results), f"{name}: {results}")
        expect(results[1][1] == expected, f"{name}: {results[1][1]} on the CPU: {expected}")
        expect(name != "file" or not meeting.exists(), "the rendezvous file is removed")


def check_examples(files):
    """scripts/launch_examples, with stand-ins for launchers that start processes as those do."""
    graph = files.folder / "pair.txt"
    expected = run_here(graph)
    stand_in = files.folder / "launcher"
    # Takes the options of srun and mpirun that the examples give, up to the program.
    stand_in.write_text(
        """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    --ntasks | --ntasks-per-node | -n | -x) shift 2 ;;
    --*) shift ;;
    *) break ;;
  esac
done
for rank in 1 0; do
  if [ "$KIND" = srun ]; then
    set_ranks="SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_LOCALID=$rank SLURM_JOB_ID=$JOB SLURM_STEP_NODELIST=127.0.0.1"
  else
    set_ranks="OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$JOB"
  fi
  env $set_ranks "$@" &
done
wait
"""
    )
    stand_in.chmod(0o755)
    variables = {**CLEAN, "RANKS": "2", "DEVICE": "emulated", "SRUN": str(stand_in), "MPIRUN": str(stand_in)}
    for name in ("srun", "mpirun", "no_launcher"):
        result = subprocess.run(
            [ROOT / f"scripts/launch_examples/{name}.sh", graph, "--deadline", "20"], capture_output=True, text=True,
            check=False, env={**variables, "KIND": name, "JOB": str(free_port())},
        )
        expect(result.returncode == 0 and result.stdout == expected, f"{name}: {result}")
    failed = subprocess.run(
        [ROOT / "scripts/launch_examples/no_launcher.sh", files.mismatch, "--deadline", "20"], capture_output=True,
        text=True, check=False, env=variables,
    )
    expect(failed.returncode == 1, f"no_launcher of a run that fails: {failed}")
    if shutil.which(os.environ.get("TORCHRUN", "torchrun")) is None:
        return
    result = subprocess.run(
        [ROOT / "scripts/launch_examples/torchrun.sh", graph, "--deadline", "20"], capture_output=True, text=True,
        check=False, env={**variables, "MASTER_PORT": str(free_port())},
    )
    expect(result.returncode == 0 and result.stdout == expected, f"torchrun: {result}")
    print("torchrun.sh: run by torchrun itself")


# --- what goes wrong ---


def check_refusals(files):
    graph = files.folder / "pair.txt"
    deadline = ["--deadline", 2]
    cases = {
        "no launcher": ({}, [], 2, "no rank and number of ranks is known"),
        "a rank too many": (torchrun(2, 2, 1), [], 2, "rank 2 is not one of 2 ranks"),
        "no number": (torchrun("one", 2, 1), [], 2, "RANK=one is not a number"),
        "another world": (torchrun(0, 4, 1), [], 2, "the graph is one of 2 ranks, torchrun started 4"),
        "nowhere to meet": ({"RANK": 0, "WORLD_SIZE": 2}, [], 2, "where the ranks meet is not known"),
        "no place": ({}, ["--rank", 0, "--world-size", 2, "--rendezvous", "here"], 2, "neither HOST:PORT nor file"),
        "no library": ({**torchrun(0, 2, 1), "EPWEAVE_NCCL": "/nonexistent.so"}, [], 4, "NCCL cannot be loaded"),
        "no NCCL": ({**torchrun(0, 2, 1), "EPWEAVE_NCCL": "libm.so.6"}, [], 4, "has no ncclGetVersion"),
    }
    for name, (variables, options, code, text) in cases.items():
        (found,) = finish([start([graph, *deadline, *options], variables)])
        expect(found[0] == code and text in found[2], f"{name}: {found}")
    result = subprocess.run(
        [REPLAY, "run", graph, "--transport", "nccl"], capture_output=True, text=True, check=False,
        env={**CLEAN, **{k: str(v) for k, v in torchrun(0, 2, 1).items()}},
    )
    expect(result.returncode == 2 and "needs --device cuda" in result.stderr, f"on the CPU: {result.stderr}")


def check_rendezvous(files):
    graph = files.folder / "pair.txt"

    def together(*starts):
        """Rank 0 first; all end, none with 0."""
        processes = [start([graph, "--deadline", 3, *options], variables) for options, variables in starts]
        results = finish(processes, 30)
        expect(all(code == 4 for code, _, _ in results), f"a failed rendezvous: {results}")
        return [errors for _, _, errors in results]

    port = free_port()
    (errors,) = together(([], torchrun(0, 2, port)))
    expect("rank 1 of 2 did not come within 3 s" in errors, errors)
    (errors,) = together(([], torchrun(1, 2, port)))
    expect("rank 0 does not answer within 3 s" in errors and "refused" in errors, errors)
    (errors,) = together((["--rank", 1, "--world-size", 2, "--rendezvous", f"file:{files.folder}/none"], {}))
    expect("leads nowhere within 3 s (--deadline): it is not there" in errors, errors)

    triple = files.folder / "triple.txt"
    triple.write_text(graph.read_text().replace("[0, 1]", "[0, 1, 2]").replace("2, 2", "1, 1, 1"))
    # Rank 1 twice in a world of three: rank 0 names both, and every process says so.
    arguments = [triple, "--deadline", 5]
    port = free_port()
    results = finish([start(arguments, torchrun(rank, 3, port)) for rank in (0, 1, 1)], 30)
    expect(all(code == 4 and "rank 1 is there twice" in errors for code, _, errors in results), f"{results}")
    # Another seed is another run.
    port = free_port()
    results = finish(
        [start([graph, "--deadline", 5, "--seed", rank], torchrun(rank, 2, port)) for rank in (0, 1)], 30
    )
    expect(all(code == 4 and "runs something else than rank 0" in e for code, _, e in results), f"{results}")


def check_strangers(files):
    """Connections that say nothing, or announce what no hello is, hold nobody up; a port that another program has is passed over."""
    graph, port = files.folder / "pair.txt", free_port()
    first = start([graph, "--deadline", 40], torchrun(0, 2, port))
    strangers = []
    while len(strangers) < 20:
        try:
            strangers.append(socket.create_connection(("127.0.0.1", port)))
        except OSError:
            time.sleep(0.05)  # rank 0 does not listen yet
    strangers[0].sendall(struct.pack("<QQ", 1, 900 << 20))
    expect(strangers[0].recv(1) == b"", "a hello of 900 MiB was waited for")
    results = finish([first, start([graph, "--deadline", 40], torchrun(1, 2, port))], 60)
    expect(all(code == 0 for code, _, _ in results), f"beside strangers: {results}")
    for stranger in strangers:
        stranger.close()

    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()  # and says nothing
        agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "x"}
        results = finish([start([graph, "--deadline", 40], {**torchrun(rank, 2, port), **agent}) for rank in (0, 1)], 60)
    expect(all(code == 0 for code, _, _ in results), f"a port that is taken: {results}")


def check_mismatch(files):
    results = run_ranks(2, files.mismatch, "--deadline", 20)
    for code, output, errors in results:
        expect(code == 1 and not output, f"splits that do not match: {code} {output}")
        for text in ("rank 0 sends 1 rows to rank 0, which expects 2", "rank 1: %e", "sends [1, 3], expects [2, 2]"):
            expect(text in errors, f"splits that do not match: {errors}")


def check_killed(files):
    """A rank that is killed while the others wait for it."""
    port = free_port()
    arguments = [files.exchange, "--inputs", files.counts, "--warm-up", 100000, "--deadline", 60]
    processes = [start(arguments, torchrun(rank, 4, port)) for rank in range(4)]
    time.sleep(3)
    expect(all(process.poll() is None for process in processes), "the runs go on")
    began = time.time()
    processes[2].send_signal(signal.SIGKILL)
    results = finish(processes, 60)
    expect(time.time() - began < 20, "the others end soon")
    for rank in (0, 1, 3):
        code, output, errors = results[rank]
        expect(code == 1 and not output, f"rank {rank}: {code} {output} {errors}")
        expect("rank 2: its process ended" in errors and f"here is rank {rank}" in errors, errors)
    processes = [start(arguments, torchrun(rank, 4, port)) for rank in range(4)]
    time.sleep(3)
    processes[0].send_signal(signal.SIGKILL)
    for rank, (code, _, errors) in enumerate(finish(processes, 60)):
        expect(rank == 0 or code == 1 and ("rank 0" in errors), f"rank 0 killed: {code} {errors}")


def check_stuck(files):
    """Work that does not end on one rank's device: the watchdogs end all, and say what was pending."""
    port = free_port()
    arguments = [files.exchange, "--inputs", files.counts, "--deadline", 3]
    results = finish([
        start(arguments, {**torchrun(rank, 4, port), **({"EPWEAVE_SOCKET_NCCL": "hang:1"} if rank == 3 else {})})
        for rank in range(4)
    ], 60)
    for rank, (code, _, errors) in enumerate(results):
        expect(code == 1 and "within 3 s" in errors, f"rank {rank} of a stuck run: {code} {errors}")
    expect(any("not done on this rank:" in errors and "collective 1 on group 1" in errors for _, _, errors in results),
           f"what is pending: {results}")
    # NCCL reports an error on one rank.
    port = free_port()
    results = finish([
        start(arguments, {**torchrun(rank, 4, port), **({"EPWEAVE_SOCKET_NCCL": "error:1"} if rank == 1 else {})})
        for rank in range(4)
    ], 60)
    for rank, (code, _, errors) in enumerate(results):
        expect(code == 1 and "rank 1: " in errors and "a fault that was asked for" in errors,
               f"rank {rank} of a run with an error of NCCL: {code} {errors}")


def check_no_meeting(files):
    """Where the graph says all sizes a rank goes on without the others: what is late is the work, not a launch."""
    graph = files.folder / "known.txt"
    graph.write_text("""epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4] role=user which=x
  %a = _c10d_functional.all_to_all_single.default(%x, [2, 2], [2, 2], "7") : f32[4]
  %w = _c10d_functional.wait_tensor.default(%a) : f32[4]
  %r = _c10d_functional.all_reduce.default(%w, "sum", "7") : f32[4]
  %v = _c10d_functional.wait_tensor.default(%r) : f32[4]
  output([%v])
""")
    arguments = [graph, "--deadline", 3]
    for fault, reason in (
        # Both are launched: the first is underway, and the second waits behind it.
        ("hang:0", "collective 0 on group 7: %a = _c10d_functional.all_to_all_single.default of f32[4], sends [2, 2], expects "
                   "[2, 2] began and was not done within 3 s (--deadline)"),
        ("progress:0", "NCCL did not send and receive (collective 0 on group 7) within 3 s (--deadline)"),
        ("progress:1", "NCCL did not send and receive (collective 1 on group 7) within 3 s (--deadline)"),
    ):
        port = free_port()
        results = finish([
            start(arguments, {**torchrun(rank, 2, port), **({"EPWEAVE_SOCKET_NCCL": fault} if rank == 1 else {})})
            for rank in range(2)
        ], 60)
        for rank, (code, output, errors) in enumerate(results):
            expect(code == 1 and not output and reason in errors, f"rank {rank}, {fault}: exit {code}: {errors}")
            expect("waited 3 s" not in errors, f"rank {rank}, {fault}: a meeting: {errors}")
        if fault == "hang:0":
            expect("%r = _c10d_functional.all_reduce.default of f32[4], sum (queued)" in results[1][2], results[1][2])


def check_looked_up_group(files):
    """A group that a node looks up in a mesh, as in graphs that are the same for all ranks."""
    graph = files.folder / "looked_up.txt"
    graph.write_text("""epweave text 1
info global_meshes = {"dense": {"axes": ["tp"], "shape": [2]}}
group 7 ranks=[0, 1] axes=[tp]
graph
  %x = placeholder : f32[4] role=user which=x
  %m = placeholder : =mesh(["tp"], [2], [0, 1], "cuda") role=user which=m
  %p = _dtensor.mesh_get_process_group.default(%m, 0) : =pg(7)
  %r = _c10d_functional.all_reduce.default(%x, "sum", %p) : f32[4]
  %v = _c10d_functional.wait_tensor.default(%r) : f32[4]
  output([%v])
""")
    expected = json.loads(run_here(graph, "--json"))
    results = run_ranks(2, graph, "--json", "--deadline", 30)
    expect(all(code == 0 for code, _, _ in results), f"a group that is looked up: {results}")
    expect(hashes(json.loads(results[0][1])) == hashes(expected), "a group that is looked up: other bits")


def check_lost_device(files):
    """A kernel that crashes on one rank's device: all end, and are told where that rank was."""
    arguments = [files.exchange, "--inputs", files.counts, "--deadline", 20]
    for launch in (1, 4, 9):
        port = free_port()
        failure = {"EPWEAVE_EMULATED_FAILURE": f"launch {launch}"}
        results = finish([
            start(arguments, {**torchrun(rank, 4, port), **(failure if rank == 1 else {})}) for rank in range(4)
        ], 60)
        for rank, (code, output, errors) in enumerate(results):
            what = f"rank {rank} where launch {launch} of rank 1 crashes: exit {code}: {errors}"
            expect(code == 1 and not output, what)
            expect("rank 1: %" in errors and "the device failed to" in errors and "takes no more work" in errors, what)
        expect("run it with CUDA_LAUNCH_BLOCKING=1" in results[1][2], results[1][2])


# --- measuring ---


def check_clocks(exchange, ranks):
    """Each rank gets a count of every other one: nobody is done before the last one has begun, as far as clocks are known."""
    expect(sorted(e["pid"] for e in exchange) == [0, 1, 2, 3], f"{exchange}")
    last = max(exchange, key=lambda e: e["ts"])
    for e in exchange:
        slack = ranks[e["pid"]]["within"] + ranks[last["pid"]]["within"]
        expect(e["ts"] + e["dur"] + slack >= last["ts"], f"{e} is done before {last} began: {ranks}")


def check_measuring(files):
    timeline, costs = files.folder / "timeline.json", files.folder / "costs.json"
    arguments = [files.exchange, "--inputs", files.counts, "--repeat", 3, "--warm-up", 1,
                 "--timeline", timeline, "--costs", costs]
    expected = json.loads(run_here(files.exchange, "--inputs", files.counts, "--json"))

    def check(kind, found):
        expect(hashes(found) == hashes(expected), f"{kind}: measuring changes no bit")
        written = json.loads(timeline.read_text())
        events, ranks = written["traceEvents"], written["otherData"]["ranks"]
        expect([r["rank"] for r in ranks] == [0, 1, 2, 3] and min(r["start"] for r in ranks) == 0, f"{kind}: {ranks}")
        spans = [event for event in events if event["ph"] == "X"]
        tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        expect(tracks == {"compute", "comm:1", "comm:2"}, f"{kind}: {tracks}")
        expect({e["pid"] for e in spans} == {0, 1, 2, 3} and all(e["dur"] >= 0 for e in spans), f"{kind}: {spans}")
        if kind == "processes":
            check_clocks([e for e in spans if e["args"].get("bytes") == 32], ranks)
        for rank in range(4):
            names = [e["name"] for e in spans if e["pid"] == rank]
            expect(names.count("_c10d_functional.all_to_all_single.default") == 3, f"{kind}: {names}")
            expect(names.count("aten.mul.Tensor") == 2, f"{kind}: {names}")
        report = json.loads(costs.read_text())
        expect(report["repeat"] == 3 and report["warm_up"] == 1 and report["ranks"] == 4, f"{kind}: {report}")
        sizes = {(c["op"], c["group_size"], c["bytes"]): c["samples"] for c in report["collectives"]}
        expect(sizes[("_c10d_functional.all_reduce.default", 2, 144)] == 12, f"{kind}: {sizes}")
        expect(sizes[("_c10d_functional.all_to_all_single.default", 4, 32)] == 12, f"{kind}: {sizes}")
        ops = {(o["op"], o["operands"]): o for o in report["ops"]}
        add = ops[("aten.add.Tensor", "f32[12, 3], f32[12, 3]")]
        expect(add["samples"] == 12 and add["min"] <= add["p50"] <= add["p90"] <= add["max"], f"{kind}: {add}")
        return report["measured_on"]

    results = run_ranks(4, *arguments, "--json")
    expect(all(code == 0 for code, _, _ in results), f"{results}")
    check("processes", json.loads(results[0][1]))
    check("the emulated device", json.loads(run_here(*arguments, "--json", "--device", "emulated")))
    measured_on = check("the CPU", json.loads(run_here(*arguments, "--json")))
    expect(measured_on["clock"] == "the host's clock" and measured_on["device"]["name"] == "cpu", measured_on)


def check_graph(path):
    expected = json.loads(run_here(path, "--json"))
    results = run_ranks(4, path, "--json", "--deadline", 600)
    expect(all(code == 0 for code, _, _ in results), f"{path}: {[errors for _, _, errors in results]}")
    expect(hashes(json.loads(results[0][1])) == hashes(expected), f"{path}: other bits than on the CPU")


def main():
    if "--graph" in sys.argv:
        check_graph(sys.argv[sys.argv.index("--graph") + 1])
        return
    with tempfile.TemporaryDirectory() as name:
        CLEAN["TMPDIR"] = name  # where a killed process leaves NCCL's log
        files = Files(pathlib.Path(name))
        pair = MISMATCH.replace("[1, 3]", "[2, 2]")
        (files.folder / "pair.txt").write_text(pair)
        for check in (check_refusals, check_bits, check_library_sums, check_log, check_graphs, check_overridden_setting, check_launchers, check_examples, check_rendezvous, check_strangers,
                      check_mismatch, check_killed, check_stuck, check_no_meeting, check_looked_up_group, check_lost_device, check_measuring):
            began = time.time()
            check(files)
            print(f"{check.__name__}: as expected, {time.time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
