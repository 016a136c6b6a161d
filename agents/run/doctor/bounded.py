"""Runs checks side by side, each with a deadline: one that hangs costs the doctor a few seconds and one line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agents.run.doctor.findings import DoctorFinding, fail

Check = Callable[[], Iterable[DoctorFinding]]


@dataclass(slots=True)
class _RunningCheck:
    name: str
    findings: Sequence[DoctorFinding] | None = None
    done: threading.Event = field(default_factory=threading.Event)


def run(checks: Iterable[tuple[str, Check]], seconds: float) -> list[DoctorFinding]:
    """The findings of all checks in their order. A check that hangs or breaks is a finding, and no traceback."""
    under = [_start(name, check) for name, check in checks]
    deadline = time.monotonic() + seconds
    found: list[DoctorFinding] = []
    for one in under:
        if one.done.wait(max(0.0, deadline - time.monotonic())) and one.findings is not None:
            found.extend(one.findings)
        else:
            text = f"no answer within {seconds:g} s"
            found.append(fail(one.name, text, "Something below it hangs; look at the kernel's log (dmesg)."))
    return found


def _start(name: str, check: Check) -> _RunningCheck:
    under = _RunningCheck(name)

    def attempt() -> None:
        try:
            under.findings = list(check())
        except Exception as error:
            text = f"the check broke: {type(error).__name__}: {error}"
            under.findings = [fail(name, text, "This is a fault in gpuwright; please report it with this line.")]
        under.done.set()

    threading.Thread(target=attempt, name=f"doctor-{name}", daemon=True).start()
    return under
