#!/usr/bin/env bash
# Compiles pyproject.toml and lab/pyproject.toml into hashed requirements, one file an install. Called by `make lock`.
# One resolution of everything constrains them all, so that no two files disagree on a version.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
  .venv/tools/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --no-annotate "$@"
}

all=$(mktemp)
trap 'rm -f "$all"' EXIT
# The present versions are preferred, unless newer versions are asked for: UPGRADE=1 make lock
[ -n "${UPGRADE:-}" ] || grep -hs '==' requirements/*.txt | sed 's/ \\$//' | sort -u >"$all" || true
compile pyproject.toml lab/pyproject.toml --all-extras --no-emit-package gpuwright --group tools --output-file "$all" >/dev/null

one() {
  local file=requirements/$1.txt
  shift
  rm -f "$file"
  compile "$@" --constraint "$all" --output-file "$file" >/dev/null
}

one client pyproject.toml
one server pyproject.toml --extra server
one agent pyproject.toml --extra agent
one kit pyproject.toml --extra kit
one docker pyproject.toml --extra docker
one onnx pyproject.toml --extra onnx
one solvers pyproject.toml --extra solvers
one planner pyproject.toml --extra server --extra planner
one up pyproject.toml --extra server --extra solvers --extra agent
one dev pyproject.toml --extra server --extra agent --extra docker --extra solvers --extra kubernetes --extra dev --extra docs
one docs pyproject.toml --extra docs
one kubernetes pyproject.toml --extra kubernetes
one parquet pyproject.toml --extra parquet
one lab lab/pyproject.toml --no-emit-package gpuwright # the product itself comes from the folder around it
one tools --group tools
