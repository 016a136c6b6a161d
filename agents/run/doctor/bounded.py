"""Runs checks in parallel with a deadline, so that one that hangs costs a few seconds and one line of output."""

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
    """Returns the findings of all checks in order. A check that hangs or breaks becomes a finding, not a traceback."""
    running = [_start(name, check) for name, check in checks]
    deadline = time.monotonic() + seconds
    found: list[DoctorFinding] = []
    for check in running:
        if check.done.wait(max(0.0, deadline - time.monotonic())) and check.findings is not None:
            found.extend(check.findings)
        else:
            text = f"no answer within {seconds:g} s"
            found.append(fail(check.name, text, "Something below it hangs; look at the kernel's log (dmesg)."))
    return found


def _start(name: str, check: Check) -> _RunningCheck:
    running = _RunningCheck(name)

    def attempt() -> None:
        try:
            running.findings = list(check())
        except Exception as error:
            text = f"the check itself failed: {type(error).__name__}: {error}"
            running.findings = [fail(name, text, "This is a bug in gpuwright; please report it with this line.")]
        running.done.set()

    threading.Thread(target=attempt, name=f"doctor-{name}", daemon=True).start()
    return running
