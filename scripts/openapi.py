"""Writes openapi/openapi.json from the code; no database is needed.

Usage: .venv/bin/python scripts/openapi.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.main import assemble  # noqa: E402
from app.settings import Settings  # noqa: E402
from scripts.generated import write_or_check  # noqa: E402

FILE = ROOT / "openapi" / "openapi.json"


def main() -> int:
    app = assemble(Settings(database_url="postgresql://nobody@127.0.0.1/none"))
    text = json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"
    return write_or_check({FILE: text})


if __name__ == "__main__":
    raise SystemExit(main())
