#!/bin/sh
# Tries the wheel on bare systems: chroots of Debian 12 and 13 that hold Python and nothing else.
#   try_on_debian.sh [--source] [--wheel FILE] [SUITE...]     suites: bookworm, trixie
#   --source   also builds the programs there, with the packages of scripts/install_packages.sh
#   --wheel    this wheel, instead of one that is built here
# Needs root, debootstrap and Debian's and Python's package servers. The systems stay in
# build/debian; rm -r makes them anew. Each must write the same bytes, and compute what testdata/gpu
# says. Exits 1 where one does not, 77 without debootstrap.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."

source=
wheel=
while [ $# -gt 0 ]; do
  case $1 in
  --source) source=1 ;;
  --wheel) wheel=${2:?} && shift ;;
  bookworm | trixie) suites="${suites:-} $1" ;;
  *)
    echo "usage: try_on_debian.sh [--source] [--wheel FILE] [bookworm|trixie...]" >&2
    exit 2
    ;;
  esac
  shift
done
command -v debootstrap >/dev/null || { echo "try_on_debian.sh: no debootstrap" >&2 && exit 77; }

folder=$PWD/build/debian
graph=dsv3_debug_ep2.1b_remat
# The newest glibc that the wheel may ask for: that of Ubuntu 22.04.
newest_glibc=2.35

# make_system NAME SUITE: a bare system, unless it is there.
make_system() {
  [ -e "$folder/$1.made" ] && return
  echo "Making $1 ..." >&2
  rm -rf "${folder:?}/$1"
  debootstrap --variant=minbase --include=python3,python3-venv "$2" "$folder/$1" >"$folder/$1.log" 2>&1 || {
    tail "$folder/$1.log" >&2
    exit 1
  }
  touch "$folder/$1.made"
}

# within NAME: runs the script of standard input in that system. Its mounts end with it.
within() {
  # shellcheck disable=SC2016  # $1 is expanded inside
  unshare --mount --propagation private sh -euc \
    'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      chroot "$1" sh -eu -' sh "$folder/$1"
}

make_wheel() {
  echo "Building the wheel ..." >&2
  rm -rf "$folder/wheels" && mkdir -p "$folder/wheels"
  [ -e "$folder/venv/bin/pip" ] || python3 -m venv "$folder/venv"
  if [ -n "$wheel" ]; then cp "$wheel" "$folder/wheels"; else "$folder/venv/bin/pip" wheel --quiet --no-deps -w "$folder/wheels" .; fi
  "$folder/venv/bin/pip" download --quiet --no-deps -d "$folder/wheels" 'protobuf>=3.20'
}

# What a user does with the programs, on a graph as torchtitan traces it. Prints one hash of all
# that is written.
# shellcheck disable=SC2016  # expanded inside
use_programs='
  epweave --version && epweave-replay --version
  epweave rewrite $graph.epw.gz --preset "ep-overlap{roots=layers.*.moe}" -o out.epw -q
  epweave verify out.epw
  epweave verify $graph.epw.gz out.epw >proof.txt
  epweave report $graph.epw.gz out.epw -o report.html -o report.md -o report.json
  epweave convert out.epw out.onnx && epweave convert out.onnx back.epw
  epweave convert export.pt2 export.txt
  epweave-replay check $graph.epw.gz out.epw -q
  epweave-replay run $graph.epw.gz -q >run.txt && cmp run.txt expected.txt
  sha256sum out.epw proof.txt report.html report.md report.json out.onnx back.epw export.txt | sha256sum >written
'

give_files() {
  mkdir -p "$folder/$1/try"
  cp "testdata/graphs/$graph.epw.gz" "$folder/$1/try/"
  cp testdata/gpu/$graph.txt "$folder/$1/try/expected.txt"
  cp testdata/pt2/small.pt2 "$folder/$1/try/export.pt2"
}

compare_written() {
  [ -e "$folder/written" ] || cp "$folder/$1/try/written" "$folder/written"
  cmp "$folder/$1/try/written" "$folder/written" || { echo "$1 writes other files than the systems before it" >&2 && exit 1; }
}

try_wheel() {
  make_system "$1" "$1"
  rm -rf "$folder/$1/try"
  give_files "$1"
  cp -r "$folder/wheels" "$folder/$1/try/"
  within "$1" <<END
    cd /try
    graph=$graph
    python3 -m venv venv
    venv/bin/pip install --quiet --no-index --find-links wheels epweave
    export PATH=/try/venv/bin:\$PATH
    $use_programs
    python - <<'PYTHON'
import importlib.util
import epweave

assert importlib.util.find_spec("torch") is None
graph = "$graph.epw.gz"
result = epweave.rewrite(graph, preset="ep-overlap", roots="layers.*.moe")
assert epweave.verify(graph, result) and not epweave.diff(graph, result)
result.save("saved.epw")
assert open("saved.epw", "rb").read() == open("out.epw", "rb").read()
PYTHON
END
  compare_written "$1"
  echo "$1: the wheel is installed and used"
}

try_source() {
  make_system "$1-source" "$1"
  rm -rf "$folder/$1-source/try"
  give_files "$1-source"
  mkdir -p "$folder/$1-source/src"
  # What git knows, at the same place, so that a second build compiles only what has changed.
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -xm -C "$folder/$1-source/src"
  within "$1-source" <<END
    cd /src
    scripts/install_packages.sh
    scripts/build.sh release epweave epweave-replay
    cd /try
    graph=$graph
    export PATH=/src/build/release/bin:\$PATH
    $use_programs
END
  compare_written "$1-source"
  echo "$1: built from source and used"
}

check_glibc() {
  rm -rf "$folder/unpacked"
  python3 -m zipfile -e "$folder"/wheels/epweave-*.whl "$folder/unpacked"
  needed=$(find "$folder/unpacked" -type f \( -path '*/bin/*' -o -name '*.so*' \) -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  if [ "$(printf '%s\n' "$needed" "GLIBC_$newest_glibc" | sort -V | tail -n 1)" != "GLIBC_$newest_glibc" ]; then
    echo "the wheel needs $needed, newer than $newest_glibc" >&2
    exit 1
  fi
  echo "the wheel needs $needed"
}

mkdir -p "$folder"
rm -f "$folder/written"
make_wheel
check_glibc
for suite in ${suites:-bookworm trixie}; do
  try_wheel "$suite"
  if [ -n "$source" ]; then try_source "$suite"; fi
done
