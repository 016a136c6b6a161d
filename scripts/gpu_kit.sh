#!/usr/bin/env bash
# Tries on this machine's first GPU what can be shown on a GPU only, and records it. Without a GPU it runs on
# stand-ins for NVIDIA's library and program, and says so. Nothing else may run on the GPU meanwhile.
#
# Usage: scripts/gpu_kit.sh run OUT   writes OUT/recording.json and OUT/gpu-evidence.md; --help has its options
#        scripts/gpu_kit.sh wheels    for a machine without network: fetches into .gpu-kit what it lacks
#        scripts/gpu_kit.sh keep FILE keeps a recording as a fixture, and writes docs/gpu-evidence.md
set -euo pipefail
cd "$(dirname "$0")/.."
kit=$PWD/.gpu-kit

if [ "${1:-}" = wheels ]; then
  platforms=(manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64)
  for version in 3.11 3.12 3.13; do
    pip download --quiet --require-hashes --no-deps --only-binary :all: --python-version "$version" \
      "${platforms[@]/#/--platform=}" --dest "$kit/wheels" --requirement requirements/agent.txt
  done
  exit
fi

# .venv if there is one; else a bare environment that also sees what this machine's Python has, such as PyTorch.
# Copies run with python -I, so everything that they need is in the environment itself.
python=.venv/bin/python
if [ ! -x "$python" ]; then
  outer=$(command -v python3) || { echo "gpu_kit.sh: this machine has neither .venv nor python3" >&2; exit 2; }
  tag=$("$outer" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  shopt -s nullglob
  wheels=("$kit"/wheels/*-{"$tag-$tag",py3-none}-*.whl)
  if [ ${#wheels[@]} -eq 0 ]; then
    echo "gpu_kit.sh: there is no .venv, and .gpu-kit/wheels has none for $tag; fetch them where there is a network" \
      "(CPython 3.11 to 3.13): scripts/gpu_kit.sh wheels" >&2
    exit 2
  fi
  "$outer" -m venv --clear --without-pip "$kit/venv"
  python=$kit/venv/bin/python
  into=$("$python" -c 'import site; print(site.getsitepackages()[0])')
  "$outer" -c 'import site; print("import site;", *(f"site.addsitedir({one!r});" for one in site.getsitepackages()))' \
    >"$into/outer.pth"
  echo "$PWD" >"$into/gpuwright.pth"
  "$outer" -m pip install --quiet --no-index --no-deps --target "$into" "${wheels[@]}"
fi
export PATH=/usr/local/nvidia/bin:$PATH
export PYTHONPATH=$PWD
exec "$python" -m scripts.gpukit "$@"
