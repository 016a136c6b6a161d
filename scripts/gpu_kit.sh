#!/usr/bin/env bash
# Tries on this machine's first GPU what can be shown on a GPU only, in at most ten minutes; see docs/gpu-evidence.md.
#
# Usage: scripts/gpu_kit.sh docker OUT builds an image, and runs it without network; it writes an archive to OUT
#        scripts/gpu_kit.sh run OUT    the same without Docker; --help has its options, which `docker` takes, too
#        scripts/gpu_kit.sh wheels     for a machine without network: fetches into .gpu-kit what `run` needs there
#        scripts/gpu_kit.sh keep FILE --sender NAME checks an archive and keeps it
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
kit=$root/.gpu-kit
: "${KIT_COMMIT:=$(git -C "$root" describe --always --abbrev=40 --dirty=-changed --exclude='*' 2>/dev/null || echo unknown)}"
export KIT_COMMIT

# wheels VERSION...: for these versions of Python
wheels() {
  local platforms=(manylinux_2_28 manylinux_2_17 manylinux2014) version
  platforms=("${platforms[@]/%/_$(uname -m)}")
  for version; do
    python3 -m pip download --quiet --require-hashes --no-deps --only-binary :all: --python-version "$version" \
      "${platforms[@]/#/--platform=}" --dest "$kit/wheels" --requirement "$root/requirements/kit.txt"
  done
}

case ${1:-} in
wheels)
  wheels 3.11 3.12 3.13
  exit
  ;;
docker)
  out=$(realpath -m -- "${2:?the folder for the archive is missing: scripts/gpu_kit.sh docker OUT}")
  shift 2
  user=(--user "$(id -u):$(id -g)")
  [[ " $* " != *" --change-settings "* ]] || user=(--user 0:0 --cap-add SYS_ADMIN)
  mkdir -p "$out"
  docker build --target kit --build-arg COMMIT="$KIT_COMMIT" --tag gpuwright-kit "$root"
  exec docker run --rm --gpus all --network none --stop-timeout 60 "${user[@]}" --volume "$out:/out" gpuwright-kit "$@"
  ;;
esac

# .venv if there is one; else a bare environment that also sees what this machine's Python has, such as PyTorch.
# Copies run with python -I, so everything that they need is in the environment itself.
python=$root/.venv/bin/python
if [ ! -x "$python" ]; then
  outer=$(command -v python3) || { echo "gpu_kit.sh: this machine has neither .venv nor python3" >&2; exit 2; }
  version=$("$outer" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  tag=cp${version/./}
  shopt -s nullglob
  compgen -G "$kit/wheels/*-$tag-$tag-*.whl" >/dev/null || wheels "$version" || {
    echo "gpu_kit.sh: there is no .venv, and what Python $version needs cannot be fetched (CPython 3.11 to 3.13);" \
      "where there is a network: scripts/gpu_kit.sh wheels" >&2
    exit 2
  }
  "$outer" -m venv --clear --without-pip "$kit/venv"
  python=$kit/venv/bin/python
  into=$("$python" -c 'import site; print(site.getsitepackages()[0])')
  "$outer" -c 'import site; print("import site;", *(f"site.addsitedir({one!r});" for one in site.getsitepackages()))' \
    >"$into/outer.pth"
  echo "$root" >"$into/gpuwright.pth"
  "$outer" -m pip install --quiet --no-index --no-deps --target "$into" "$kit"/wheels/*-{"$tag-$tag",py3-none}-*.whl
fi
export PATH=/usr/local/nvidia/bin:$PATH
export PYTHONPATH=$root
exec "$python" -P -m scripts.gpukit "$@"
