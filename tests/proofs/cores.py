"""The seconds that containers ran on a core and waited for one, beside what all other work used: late answers may be
late for want of a core.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NANOSECONDS = 1e9
TICKS = os.sysconf("SC_CLK_TCK")
BUSY = slice(0, 3), slice(5, 7)  # of the first line of /proc/stat: user, nice, system; interrupts

Thread = tuple[str, str]  # service, id


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """A reading since threads began; those that ended are not in it."""

    ran: Mapping[Thread, float]
    waited: Mapping[Thread, float]
    busy: float  # of the whole machine

    def describe_since(self, before: CoreTimes) -> str:
        """Returns a sentence about the time between two readings."""
        ran, waited = (_by_service(now, then) for now, then in ((self.ran, before.ran), (self.waited, before.waited)))
        most = max(waited, key=lambda service: waited[service], default="nothing")
        ran_all, waited_all = sum(ran.values()), sum(waited.values())
        others = max(0.0, self.busy - before.busy - ran_all)
        return (
            f"the testbed ran for {ran_all:.0f} core seconds and waited {waited_all:.0f} s for one of "
            f"{os.cpu_count()} cores ({most} {waited.get(most, 0.0):.0f} s); other work ran for {others:.0f}"
        )


def read_core_times() -> CoreTimes:
    words = ["docker", "ps", "--no-trunc", "--format", '{{.ID}} {{.Label "com.docker.compose.service"}}']
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    services = dict(line.split(maxsplit=1) for line in printed.splitlines() if " " in line.strip())
    ran, waited = {}, {}
    for service, thread in _threads(services):
        try:
            first, second, _ = (thread / "schedstat").read_text().split()
        except OSError:  # it has ended
            continue
        key = service, thread.name
        ran[key], waited[key] = int(first) / NANOSECONDS, int(second) / NANOSECONDS
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return CoreTimes(ran, waited, sum(sum(fields[part]) for part in BUSY) / TICKS)


def _threads(services: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yields the threads of all containers; a process's cgroup holds the name of its container."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            group = (process / "cgroup").read_text()
            threads = list((process / "task").iterdir())
        except OSError:
            continue
        for container, service in services.items():
            if container in group:
                yield from ((service, thread) for thread in threads)


def _by_service(now: Mapping[Thread, float], before: Mapping[Thread, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for thread, seconds in now.items():
        found[thread[0]] = found.get(thread[0], 0.0) + seconds - before.get(thread, 0.0)
    return found
