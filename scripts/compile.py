"""Compiles the solvers' loops, so that no decision waits for it, and once to bytecode all that tests and verbs import.

Does nothing when nothing changed. Bytecode because installers may leave it out, and our user may not write it: each
start would then take a second longer.

Usage: .venv/bin/python scripts/compile.py install | up
  install   all loops, and the first time bytecode
  up        the loops alone, those of a first plan and of its explanation first, behind everyone else
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GREEDY = ("solvers.latency.kernels", "solvers.planning.fleet.grids", "solvers.planning.fleet.kernels")
FIRST = (*GREEDY, "app.control.solve.serving", "solvers.planning.replan")  # what people wait for
LEAST = 19  # niceness
PRODUCT = ("solvers", "simulation", "benchmarks")  # the folders that have loops


def main(arguments: list[str]) -> int:
    if arguments not in (["install"], ["up"]):
        print("usage: compile.py install | up", file=sys.stderr)
        return 2
    (what,) = arguments
    stamp = ROOT / ".venv" / f"compiled-{what}"
    folders = (*PRODUCT, "lab") if what == "install" else PRODUCT
    whole = fingerprint(folders)
    if stamp.exists() and stamp.read_text() == whole:
        return 0
    print("compiling the solvers' loops, this once: about half a minute", file=sys.stderr, flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "solvers.compiling", *FIRST, *modules_with_loops(folders)]
    if what == "up":
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is for the server that runs next to us
        os.nice(LEAST)
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        return done.returncode
    if what == "install":
        if not stamp.exists():
            write_bytecode()
        print(f"compiled in {time.monotonic() - began:.0f} s", file=sys.stderr)
    stamp.write_text(whole)
    return 0


def sources(folders: tuple[str, ...]) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def fingerprint(folders: tuple[str, ...]) -> str:
    whole = hashlib.sha256((ROOT / "requirements" / "dev.txt").read_bytes())
    for path in [*sources(folders), Path(__file__)]:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def modules_with_loops(folders: tuple[str, ...]) -> list[str]:
    files = [path for path in sources(folders) if b"@njit(" in path.read_bytes()]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]


def write_bytecode() -> None:
    """Lets pytest import all tests: it alone writes theirs, with their assertions told in full.

    A run with a meter loads what tests import late, too. Tests that cannot be imported stop no installation.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", f"--meter={os.devnull}"]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
