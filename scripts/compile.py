"""Compiles the solvers' loops, so that no decision waits for it, and to bytecode all that `gpuwright solve` imports.

Does nothing when nothing changed. Bytecode because installers may leave it out, and whoever runs us may not write it:
each start would then take a second longer.

Usage: .venv/bin/python scripts/compile.py
"""

from __future__ import annotations

import hashlib
import py_compile
import sys
import time
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / ".venv" / "compiled"
STARTED = (
    "cli.main",
    "cli.verbs.solve",
    "cli.verbs.verify",
    "app.control.formulate.problem",
    "app.manifests.offline",
    "solvers.planning.explain",
    "solvers.planning.jobs",
    "solvers.planning.replan",
    "scipy.optimize",
)


def main() -> int:
    files = sorted(path for folder in ("solvers", "simulation", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
    files = [path for path in files if b"njit(" in path.read_bytes()]
    whole = hashlib.sha256((ROOT / "requirements" / "dev.txt").read_bytes())
    for path in [*files, Path(__file__)]:
        whole.update(path.read_bytes())
    if STAMP.exists() and STAMP.read_text() == whole.hexdigest():
        return 0
    print("compiling the solvers' loops", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    sys.path.insert(0, str(ROOT))
    for path in files:
        import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    import_module("solvers.compiled").read_all()
    for name in STARTED:
        import_module(name)
    sources = [Path(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())]
    for source in sources:
        if source.suffix == ".py" and source.is_relative_to(ROOT):
            py_compile.compile(str(source))
    print(f": {time.monotonic() - began:.0f} s", file=sys.stderr)
    STAMP.write_text(whole.hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
