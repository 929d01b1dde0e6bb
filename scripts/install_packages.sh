#!/bin/sh
# Installs what building epweave needs, on Debian 12 and 13. Does nothing where all of it is there.
#   --tests   also what only tests and checks need: a browser, a formatter, a linker, a linter
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac

packages="
  g++ cmake ninja-build ccache
  protobuf-compiler libprotobuf-dev libfmt-dev libcli11-dev libssl-dev zlib1g-dev nlohmann-json3-dev catch2 libonnx-dev libminizip-dev
  python3 python3-venv python3-protobuf
"
case ${1:-} in
'') ;;
--tests) packages="$packages chromium clang-format lld shellcheck" ;;
*)
  echo "usage: scripts/install_packages.sh [--tests]" >&2
  exit 2
  ;;
esac

if ! command -v dpkg-query >/dev/null; then
  # shellcheck disable=SC2086  # a list of words
  echo "install_packages.sh: only Debian's packages are known here; install what these hold, then run scripts/build.sh:" $packages >&2
  exit 1
fi
missing=
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "install_packages.sh: not root, and these packages are missing:$missing" >&2
  echo "  sudo scripts/install_packages.sh${1:+ $1}" >&2
  exit 1
fi
echo "Installing packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # a list of words
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
