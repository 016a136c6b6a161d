"""What the doctor found, in words that an operator can act on."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"  # it works, and something is worth knowing or doing
    FAIL = "fail"  # something cannot be done or enforced here


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was tried: what came of it, and what to do about it."""

    check: str
    level: Level
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was tried on this node."""

    findings: tuple[DoctorFinding, ...]
    has_gpu: bool

    @property
    def exit_code(self) -> int:
        """0: all can be done; 1: something cannot; 3: there is no GPU here to do it with."""
        if not self.has_gpu:
            return 3
        return 1 if any(finding.level is Level.FAIL for finding in self.findings) else 0

    @property
    def verdict(self) -> str:
        """The one sentence that matters."""
        failed = sum(finding.level is Level.FAIL for finding in self.findings)
        warned = sum(finding.level is Level.WARN for finding in self.findings)
        if not self.has_gpu:
            return "There is no NVIDIA GPU here that the driver reaches: an agent could run simulated ones only."
        if failed:
            return f"This node cannot do or enforce {failed} of {len(self.findings)} things."
        more = f"; {warned} things are worth a look" if warned else ""
        return f"This node can do and enforce everything{more}."

    def text(self) -> str:
        """For a terminal."""
        width = max((len(finding.check) for finding in self.findings), default=0)
        lines: list[str] = []
        for finding in self.findings:
            head = f"{finding.level.value:4}  {finding.check:{width}}  "
            lines += _wrapped(finding.found, head)
            if finding.advice:
                lines += _wrapped(finding.advice, " " * (len(head) - 2) + "> ")
        return "\n".join([*lines, "", self.verdict])

    def json(self) -> str:
        """For a program."""
        said = {
            "verdict": self.verdict,
            "exitCode": self.exit_code,
            "hasGpu": self.has_gpu,
            "findings": [asdict(finding) for finding in self.findings],
        }
        return json.dumps(said, indent=2)


def ok(check: str, found: str) -> DoctorFinding:
    return DoctorFinding(check, Level.OK, found)


def warn(check: str, found: str, advice: str) -> DoctorFinding:
    return DoctorFinding(check, Level.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> DoctorFinding:
    return DoctorFinding(check, Level.FAIL, found, advice)


def listed(things: Iterable[object]) -> str:
    return ", ".join(str(thing) for thing in things) or "none"


def _wrapped(text: str, head: str) -> list[str]:
    lines = textwrap.wrap(text, 110 - len(head), break_long_words=False, break_on_hyphens=False) or [""]
    return [head + lines[0], *(" " * len(head) + line for line in lines[1:])]
