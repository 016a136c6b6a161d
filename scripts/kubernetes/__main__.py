"""Builds etcd, an API server of Kubernetes and what belongs to it, with Go, unless they are there: for tests.

Usage: .venv/bin/python -m scripts.kubernetes
It ends with 1 where Go or its module proxy is missing, or a program cannot be built.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.kubernetes.programs import ASSETS, MODULE, PACKAGES, find_cache, find_program, read_version

CANNOT = 1
GO = ("/usr/local/go/bin", "/usr/lib/go/bin")


def main() -> int:
    missing = [name for name in PACKAGES if not find_program(name)]
    if not missing:
        print(f"all there: {os.environ.get(ASSETS) or find_cache()}")
        return 0
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *GO)))
    if go is None:
        print("go is not installed: it builds an API server of Kubernetes for tests", file=sys.stderr)
        return CANNOT
    asked = [go, "mod", "download", "k8s.io/kubernetes"]
    if subprocess.run(asked, cwd=MODULE.parent, env=environment(), check=False).returncode:
        print("Go's module proxy does not answer as it should", file=sys.stderr)
        return CANNOT
    print(f"builds {', '.join(missing)} of Kubernetes {read_version()}; it takes several minutes, once", flush=True)
    began, folder = time.monotonic(), find_cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix="building-") as made:
        for name in missing:
            try:
                subprocess.run(words_of(go, name, Path(made)), cwd=MODULE.parent, env=environment(), check=True)
            except subprocess.CalledProcessError as failed:
                print(f"{name} could not be built: {failed}", file=sys.stderr)
                return CANNOT
        folder.mkdir(exist_ok=True)
        for path in Path(made).iterdir():
            path.replace(folder / path.name)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    print(f"{time.monotonic() - began:.0f} s, {cpu:.0f} s of CPU, {memory:.1f} GiB in the largest process: {folder}")
    return 0


def words_of(go: str, name: str, made: Path) -> list[str]:
    """Returns the command that builds one program; it says the release that it is of when it is asked."""
    version = read_version()
    minor = version.removeprefix("v").split(".")[1]
    said = {"gitVersion": version, "gitMajor": "1", "gitMinor": minor}
    stamps = [f"-X k8s.io/component-base/version.{field}={value}" for field, value in said.items()]
    flags = " ".join(["-s", "-w", *stamps])
    return [go, "build", "-trimpath", "-ldflags", flags, "-o", str(made / name), PACKAGES[name]]


def environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


if __name__ == "__main__":
    raise SystemExit(main())
