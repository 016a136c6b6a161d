"""The README's figure and map, made by `gpuwright bench savings`: writes them, or with --check says where they differ.

Usage: python scripts/savings.py [--check]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, MAP = ROOT / "README.md", ROOT / "docs" / "savings.svg"
BEGIN, END = "$ make savings\n...\n", "```"  # progress, which goes to stderr, is left out


def read_block(page: str) -> str:
    """Returns what the README shows below the command, as far as stdout has it."""
    return page.split(BEGIN, 1)[1].split(END, 1)[0]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "map.svg"
        command = [sys.executable, "-m", "cli.main", "bench", "savings", "--map", str(drawn)]
        printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        page, picture = README.read_text(encoding="utf-8"), drawn.read_text(encoding="utf-8")
    if "--check" not in sys.argv:
        README.write_text(page.replace(BEGIN + read_block(page), BEGIN + printed), encoding="utf-8")
        MAP.write_text(picture, encoding="utf-8")
        return 0
    faults = []
    if read_block(page) != printed:
        faults.append(f"README.md shows another figure than\n{printed}")
    if MAP.read_text(encoding="utf-8") != picture:
        faults.append(f"{MAP.relative_to(ROOT)} shows another plan")
    for fault in faults:
        print(f"{fault}\n`python scripts/savings.py` writes both", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
