"""How long after a write is answered by one replica a watch on another tells of it: `python -m ... --writes 300`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulation.real.open_loop import percentile
from tests.support.caller import Caller
from tests.support.follower import Follower
from tests.support.patience import patience, until
from tests.support.postgres import at_port, pgbouncer, postgres_of_the_wheel
from tests.support.server import RunningServer, running_server

UNLIMITED = {"GPUWRIGHT_RATE_PER_SECOND": "1000000", "GPUWRIGHT_RATE_BURST": "1000000"}
SEED = 7
LONGEST_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Latency:
    """In ms, from the answer to the write until the event; below 0 when the event came first."""

    writes: int
    p50_ms: float
    p99_ms: float
    worst_ms: float

    def __str__(self) -> str:
        return f"{self.writes} writes: p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, worst {self.worst_ms:.1f} ms"


def measure(one: RunningServer, other: RunningServer, writes: int, seed: int = SEED) -> Latency:
    """Write on one replica, one at a time and at random moments, and watch on the other."""
    rng = random.Random(seed)
    start = one.request("GET", "/readyz").json["resourceVersion"]
    follower = Follower([other.port], one.admin_token, seed, start=start)
    caller = Caller(one.port, one.admin_token)
    assert follower.listening.wait(patience())
    answered: dict[int, float] = {}
    for number in range(writes):
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
        spec = {"limit": {"gpus": number + 1}}
        reply = caller.ask("PUT", f"/api/v1/tenants/latency-{number % 10}", {"spec": spec})
        assert reply.status in (200, 201), reply.text
        answered[int(reply.headers["etag"].strip('"'))] = time.monotonic()
    until(lambda: answered.keys() <= follower.arrived.keys(), "events")
    follower.stop()
    caller.close()
    waits = [(follower.arrived[version] - when) * 1000 for version, when in answered.items()]
    return Latency(writes, percentile(waits, 50), percentile(waits, 99), max(waits))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_of_the_wheel(Path(folder) / "data") as postgres,
        pgbouncer(Path(folder) / "pooler", postgres.server.url) as port,
    ):
        for name in ("direct", "pgbouncer"):
            url = postgres.create()
            settings = UNLIMITED | ({"GPUWRIGHT_DATABASE_DIRECT": "1"} if name == "direct" else {})
            reached = url if name == "direct" else at_port(url, port)
            with running_server(reached, **settings) as one, running_server(reached, **settings) as other:
                print(f"{name}, seed {asked.seed}: {measure(one, other, asked.writes, asked.seed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
