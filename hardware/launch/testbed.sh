#!/bin/sh
# testbed.sh PAPER DIR [OPTIONS]: run the experiments of a paper (a folder beside this script) on the testbed, each into
# DIR/NAME. OPTIONS are those of `cct testbed run`, such as --backend netns. Existing runs are skipped, and a sweep
# continues where it stopped. Files named …-sim.toml are for `cct simulate` only, bmv2….toml for
# `python -m hardware.launch.switch`.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 PAPER DIR [OPTIONS of cct testbed run]" >&2; exit 2; }
paper=$(dirname "$0")/$1 out=$2
shift 2
[ -d "$paper" ] || { echo "$0: no folder $paper" >&2; exit 2; }
for file in "$paper"/*.toml; do
  name=$(basename "$file" .toml)
  case $name in *-sim | bmv2*) continue ;; esac
  if grep -q '^\[sweep\]' "$file"; then
    cct testbed sweep "$file" -o "$out/$name" "$@"
  elif [ ! -e "$out/$name" ]; then
    cct testbed run "$file" -o "$out/$name" "$@"
  fi
done
