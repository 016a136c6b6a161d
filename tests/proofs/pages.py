"""A page of the documentation done by its letter: its blocks of shell, one after the other, in one shell.

python -m tests.proofs.pages tutorial three-machines
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from scripts.house.tree import ROOT
from scripts.house.typed import DOCS, read_blocks

SECONDS = 900.0  # a guard


def done(page: Path, seconds: float = SECONDS) -> tuple[int, str]:
    """The exit code, and all that was printed. Whatever is left running is ended."""
    script = "".join(f"echo '## {page.name}:{one.line}'\n{one.text}\n" for one in read_blocks(page) if one.kind == "sh")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = shell.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return 124, (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else str(error.stdout)
    finally:
        with suppress(ProcessLookupError):  # what it had put into the background
            os.killpg(shell.pid, signal.SIGTERM)
    return shell.returncode, said


def main() -> int:
    codes = []
    for name in sys.argv[1:]:
        began = time.monotonic()
        code, said = done(DOCS / f"{name}.md")
        print(said)
        print(f"== {name}: {'done' if code == 0 else f'exit code {code}'} after {time.monotonic() - began:.0f} s")
        codes.append(code)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
