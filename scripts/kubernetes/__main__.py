"""Builds a control plane of Kubernetes, KEDA or Envoy Gateway with Go, unless they are there: for tests.

Usage: .venv/bin/python -m scripts.kubernetes [kubernetes | keda | gateway]
It ends with 1 where Go or its module proxy is missing, or a program cannot be built.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.kubernetes.programs import ALL, ASSETS, DEFINITIONS, Programs

CANNOT = 1
GO = ("/usr/local/go/bin", "/usr/lib/go/bin")


def main() -> int:
    parser = ArgumentParser(prog="scripts.kubernetes", description="Builds programs for tests with Go.")
    parser.add_argument("what", nargs="?", choices=ALL, default="kubernetes")
    programs = ALL[parser.parse_args().what]
    missing = programs.find_missing()
    if not missing:
        print(f"all there: {os.environ.get(ASSETS) or programs.find_cache()}")
        return 0
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *GO)))
    if go is None:
        print("go is not installed: it builds programs of Kubernetes for tests", file=sys.stderr)
        return CANNOT
    asked = [go, "mod", "download", programs.required]
    if subprocess.run(asked, cwd=programs.module.parent, env=environment(), check=False).returncode:
        print("Go's module proxy does not answer as it should", file=sys.stderr)
        return CANNOT
    print(f"builds {', '.join(missing)} {programs.read_version()}; it takes several minutes, once", flush=True)
    began, folder = time.monotonic(), programs.find_cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix="building-") as made:
        try:
            for name in missing:
                subprocess.run(
                    words_of(go, programs, name, Path(made)),
                    cwd=programs.module.parent, env=environment(), check=True,
                )  # fmt: skip
            if programs.definitions:
                copy_files(find_source(go, programs) / programs.definitions, Path(made) / DEFINITIONS)
        except subprocess.CalledProcessError as failed:
            print(f"{', '.join(missing)} could not be built: {failed}", file=sys.stderr)
            return CANNOT
        folder.mkdir(exist_ok=True)
        for path in Path(made).iterdir():
            path.replace(folder / path.name)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    print(f"{time.monotonic() - began:.0f} s, {cpu:.0f} s of CPU, {memory:.1f} GiB in the largest process: {folder}")
    return 0


def words_of(go: str, programs: Programs, name: str, made: Path) -> list[str]:
    """Returns the command that builds one program; it says the release that it is of when it is asked."""
    version = programs.read_version()
    said = [stamp.format(version=version, minor=version.split(".")[1]) for stamp in programs.stamps]
    flags = " ".join(["-s", "-w", *(f"-X {each}" for each in said)])
    return [go, "build", "-trimpath", "-ldflags", flags, "-o", str(made / name), programs.packages[name]]


def find_source(go: str, programs: Programs) -> Path:
    """Returns the folder of the required module in Go's cache."""
    asked = [go, "list", "-m", "-f", "{{.Dir}}", programs.required]
    done = subprocess.run(
        asked, cwd=programs.module.parent, env=environment(), check=True, capture_output=True, text=True
    )
    return Path(done.stdout.strip())


def copy_files(source: Path, target: Path) -> None:
    """Copies contents alone: Go's cache lets nobody write, not even rename a folder."""
    target.mkdir()
    for path in source.rglob("*.yaml"):
        shutil.copyfile(path, target / path.name)


def environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


if __name__ == "__main__":
    raise SystemExit(main())
