"""Replicas of a real Ray Serve change under requests, and none fails: `python -m tests.proofs.ray --requests 10000`.

A scaler changes replicas as its file says, again and again, until so many requests went through Ray's own proxy. It
prints how long each change took from the cycle that planned it until Ray ran the planned replicas. Needs root.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

from app.store.plans.scale_rows import ScaleState
from tests.ray_serve.asking import asking
from tests.ray_serve.site import RaySite, running_site

CYCLE_SECONDS = 30.0  # the scaler's, as it is if nobody sets it
REPLICAS = (2, 4, 1, 3)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=4)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder, running_site(Path(folder)) as site:
        return _prove(site, args.requests, args.clients)


def _prove(site: RaySite, requests: int, clients: int) -> int:
    took: list[float] = []
    began = time.monotonic()
    with asking(clients, 0.01) as asked:
        for replicas in cycle(REPLICAS):
            if asked.answered + len(asked.failures) >= requests and len(took) >= len(REPLICAS):
                break
            site.adopt(mode="auto", minReplicas=replicas, maxReplicas=replicas)
            if not took:
                site.start()
            row = site.await_state(ScaleState.WRITTEN, replicas)
            site.await_running(replicas)
            assert row.written_at is not None
            took.append((datetime.now(UTC) - row.written_at).total_seconds())
            sys.stdout.write(f"{row.replicas} -> {replicas} replicas: {took[-1]:.1f} s after the plan's write\n")
    seconds = time.monotonic() - began
    late = sum(each > CYCLE_SECONDS for each in took)
    sys.stdout.write(
        f"{asked.answered} requests answered in {seconds:.0f} s, {len(asked.failures)} failed; {len(took)} changes, "
        f"the slowest in {max(took):.1f} s, {late} of them after a cycle of {CYCLE_SECONDS:.0f} s\n"
    )
    for failure in asked.failures[:10]:
        sys.stdout.write(f"failed: {failure}\n")
    return int(bool(asked.failures) or late > 0)


if __name__ == "__main__":
    sys.exit(main())
