"""The doctor's findings, worded so that an operator can act on them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"  # it works, but there is something to know or do
    FAIL = "fail"  # something does not work or cannot be enforced here


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check, and what to do about it."""

    check: str
    level: Level
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings on this node."""

    findings: tuple[DoctorFinding, ...]
    has_gpu: bool

    @property
    def exit_code(self) -> int:
        """0: everything works; 1: something does not; 3: there is no GPU here."""
        if not self.has_gpu:
            return 3
        return 1 if any(finding.level is Level.FAIL for finding in self.findings) else 0

    @property
    def verdict(self) -> str:
        """The conclusion, in one sentence."""
        failed = sum(finding.level is Level.FAIL for finding in self.findings)
        warned = sum(finding.level is Level.WARN for finding in self.findings)
        if not self.has_gpu:
            return "The driver reaches no NVIDIA GPU here: an agent could only run simulated ones."
        if failed:
            return f"{failed} of {len(self.findings)} checks failed: this node cannot do or enforce what they test."
        more = f"; {warned} warnings are worth a look" if warned else ""
        return f"This node can do and enforce everything{more}."

    def text(self) -> str:
        """Returns the findings as text for a terminal."""
        width = max((len(finding.check) for finding in self.findings), default=0)
        lines: list[str] = []
        for finding in self.findings:
            head = f"{finding.level.value:4}  {finding.check:{width}}  "
            lines += _wrap(finding.found, head)
            if finding.advice:
                lines += _wrap(finding.advice, " " * (len(head) - 2) + "> ")
        return "\n".join([*lines, "", self.verdict])

    def json(self) -> str:
        """Returns the findings as JSON for a program."""
        content = {
            "verdict": self.verdict,
            "exitCode": self.exit_code,
            "hasGpu": self.has_gpu,
            "findings": [asdict(finding) for finding in self.findings],
        }
        return json.dumps(content, indent=2)


def ok(check: str, found: str) -> DoctorFinding:
    return DoctorFinding(check, Level.OK, found)


def warn(check: str, found: str, advice: str) -> DoctorFinding:
    return DoctorFinding(check, Level.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> DoctorFinding:
    return DoctorFinding(check, Level.FAIL, found, advice)


def join_items(items: Iterable[object]) -> str:
    return ", ".join(str(thing) for thing in items) or "none"


def _wrap(text: str, head: str) -> list[str]:
    lines = textwrap.wrap(text, 110 - len(head), break_long_words=False, break_on_hyphens=False) or [""]
    return [head + lines[0], *(" " * len(head) + line for line in lines[1:])]
