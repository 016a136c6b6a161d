"""Refuses what must not be in a public repository: build machines' paths, package index hosts, secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURSELVES = Path("scripts/leaks.py")

EVERYWHERE = {
    "the path of a build machine": re.compile(r"(?<![\w.])/(?:home/(?!me/)\w+|root|work|builds|Users/\w+)/[\w.]"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9+/=]{40}"),
    "a gpuwright token": re.compile(r"\bgwj?_[0-9A-Za-z]+_[0-9A-Za-z_-]{32,}"),
    "a cloud access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36}"),
    "a package index": re.compile(r"(?:--(?:extra-)?index-url|--find-links|--trusted-host)[ =]\S"),
}
IN_REQUIREMENTS = {"an address": re.compile(r"://")}


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.decode()  # fmt: skip
    findings = [
        finding
        for name in sorted(filter(None, listed.split("\0")))
        if Path(name) != OURSELVES and (ROOT / name).is_file()
        for finding in leaks_of(Path(name), (ROOT / name).read_bytes())
    ]
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


def leaks_of(name: Path, content: bytes) -> list[str]:
    """`file:line: what it is`, for each finding; binary files are skipped."""
    if b"\0" in content[:8192]:
        return []
    text = content.decode("utf-8", errors="replace")
    rules = EVERYWHERE | (IN_REQUIREMENTS if name.parts[0] == "requirements" else {})
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {what}"
        for what, pattern in rules.items()
        for found in pattern.finditer(text)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
