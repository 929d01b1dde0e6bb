#!/usr/bin/env python3
"""Installs the build folder given into a new folder and uses what is there: programs, manual page, completions.

With --deb also makes the Debian package and uses what it holds.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

GRAPH = pathlib.Path(__file__).resolve().parents[2] / "testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz"
PROGRAMS = ("epweave", "epweave-replay")
FILES = (*(path.format(program) for program in PROGRAMS
           for path in ("bin/{}", "share/man/man1/{}.1", "share/bash-completion/completions/{}",
                        "share/zsh/vendor-completions/_{}", "share/fish/vendor_completions.d/{}.fish")),
         "share/epweave/epweave_fx.py", "share/epweave/trace_torchtitan.py",
         "lib/python3/dist-packages/epweave/__init__.py",
         "share/epweave/epweave.proto", "share/doc/epweave/README.md", "share/doc/epweave/docs/chunking.md")


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def complete(script, *words):
    """What bash offers behind the words."""
    line, function = " ".join(f"'{word}'" for word in words), "_" + words[0].replace("-", "_")
    return run("bash", "-c", f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; {function}; "
                             'printf "%s\\n" "${COMPREPLY[@]}"').split()


def check_program(prefix, program):
    assert run(prefix / "bin" / program, "--version").startswith(f"{program} ")
    page = prefix / f"share/man/man1/{program}.1"
    if shutil.which("groff"):
        result = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
    name = program.replace("-", r"\-")
    for command in run(prefix / "bin" / program, "--help").split("Subcommands:")[1].split("Exit codes")[0].split("\n"):
        if command.startswith("  ") and not command.startswith("   "):
            assert f".SH {name} {command.split()[0]}" in page.read_text(), command
    assert complete(prefix / "share/bash-completion/completions" / program, program, "completion", "fi") == ["fish"]
    for shell, script in (("zsh", f"share/zsh/vendor-completions/_{program}"),
                          ("fish", f"share/fish/vendor_completions.d/{program}.fish")):
        if shutil.which(shell):
            run(shell, "-n", prefix / script)


def check(prefix):
    for name in FILES:
        assert (prefix / name).is_file(), f"{name} is not installed"
    for program in PROGRAMS:
        check_program(prefix, program)
    assert "from-dump" in run(sys.executable, prefix / "share/epweave/epweave_fx.py", "--help")
    bash = prefix / "share/bash-completion/completions/epweave"
    assert "rewrite" in complete(bash, "epweave", "rew")
    assert complete(bash, "epweave", "diff", "--ht") == ["--html"]
    if shutil.which("fish"):  # the words before tabs; descriptions are behind them
        found = run("fish", "-c", f"set -p PATH '{prefix}/bin'; source '{prefix}/share/fish/vendor_completions.d/epweave.fish'; "
                    f"complete -C 'epweave extract {GRAPH} --module layers.3.attention_'")
        assert [line.split("\t")[0] for line in found.splitlines()] == ["layers.3.attention_norm"], found
    replay = prefix / "share/bash-completion/completions/epweave-replay"
    assert complete(replay, "epweave-replay", "run", "--se") == ["--seed"]
    assert complete(replay, "epweave-replay", "check", "--data", "int") == ["integer"]
    assert complete(replay, "epweave-replay", "run", "--device", "cu") == ["cuda"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--deb", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run("cmake", "--install", options.build, "--prefix", folder / "prefix")
        check(folder / "prefix")
        if options.deb:
            run("cpack", "-G", "DEB", "-B", folder / "package", cwd=options.build)
            packages = list((folder / "package").glob("*.deb"))
            assert len(packages) == 1, packages
            run("dpkg-deb", "-x", packages[0], folder / "root")
            check(folder / "root/usr")
            print(run("dpkg-deb", "-f", packages[0], "Package", "Version", "Architecture", "Depends").strip())
    print("installed files: all there and in use")


if __name__ == "__main__":
    main()
