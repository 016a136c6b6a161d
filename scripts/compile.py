"""Compiles the solvers' loops, so that no decision waits for it; does nothing when nothing changed.

Usage: .venv/bin/python scripts/compile.py
"""

from __future__ import annotations

import hashlib
import sys
import time
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / ".venv" / "compiled"


def main() -> int:
    files = sorted(path for folder in ("solvers", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
    files = [path for path in files if b"njit(" in path.read_bytes()]
    whole = hashlib.sha256((ROOT / "requirements" / "dev.txt").read_bytes())
    for path in files:
        whole.update(path.read_bytes())
    if STAMP.exists() and STAMP.read_text() == whole.hexdigest():
        return 0
    print("compiling the solvers' loops", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    sys.path.insert(0, str(ROOT))
    for path in files:
        import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    print(f": {time.monotonic() - began:.0f} s", file=sys.stderr)
    STAMP.write_text(whole.hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
