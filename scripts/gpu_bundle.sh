#!/bin/sh
# Makes a portable bundle for a GPU machine without compilers and package registries: gpu_bundle.sh
# OUT.tar.gz [BIN]
#
# Holds the programs of BIN (default: build/release/bin), libepweave_cuda.so, the tests of kernels
# and products, the shared libraries they need but those of the C library (found through the
# programs' RPATH, $ORIGIN/../lib), the graphs and hashes of scripts/gpu_test.sh, and the Python
# package, for a comparison with a PyTorch that is there (it needs `protobuf` and `safetensors`
# beside). No CUDA library beside the runtime that is linked in, no cuBLAS, no NCCL. On the other
# machine: tar xzf OUT.tar.gz && epweave-gpu/scripts/gpu_test.sh
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."
out=${1:?usage: gpu_bundle.sh OUT.tar.gz [BIN]}
build=${2:-build/release/bin}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/epweave-gpu

mkdir -p "$to/bin" "$to/lib" "$to/scripts/launch_examples" "$to/scripts/dev" "$to/python/epweave" "$to/testdata/graphs" "$to/testdata/gpu" "$to/testdata/kernels"
for file in epweave epweave-replay libepweave_cuda.so replay_kernels_device_test replay_cublas_test; do
  if [ ! -f "$build/$file" ]; then
    echo "gpu_bundle.sh: $build/$file is not built" >&2
    exit 1
  fi
  cp "$build/$file" "$to/bin/"
done
strip "$to"/bin/epweave "$to"/bin/epweave-replay "$to"/bin/replay_kernels_device_test "$to"/bin/replay_cublas_test
# What the programs need, but what every glibc system has.
for file in "$to"/bin/*; do ldd "$file"; done | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | while read -r library; do
    cp -L "$library" "$to/lib/"
  done
cp scripts/gpu_test.sh scripts/bench_replay.py scripts/compare_with_torch.py scripts/epweave_fx.py scripts/train_artifact.py "$to/scripts/"
cp scripts/dev/gpu_rates.py "$to/scripts/dev/"
cp python/epweave/*.py "$to/python/epweave/"
cp scripts/launch_examples/*.sh "$to/scripts/launch_examples/"
cp testdata/kernels/cases.json "$to/testdata/kernels/"
cp testdata/graphs/dsv3_16b_ep8.1b_remat.epw.gz "$to/testdata/graphs/"  # cut to two layers there
for hashes in testdata/gpu/*.txt; do
  cp "$hashes" "$to/testdata/gpu/"
  cp "testdata/graphs/$(basename "$hashes" .txt).epw.gz" "$to/testdata/graphs/"
done
tar -C "$work" --owner=0 --group=0 -czf "$out" epweave-gpu
du -h "$out" | awk '{ print $2 ": " $1 }'
