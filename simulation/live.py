"""Simulates a fleet in real time, for which `gpuwright up` plans.

Usage: DATABASE_URL=... python -m simulation.live [--left-out NAME]... [--truth NAME [--truth-seed K] [--data DIR]
       --memory FILE] [--checkpoints DIR] NODE...

The fleet follows the declared world: another rate, service or profile takes effect within seconds.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from app.nodes import device_status, reporting_condition
from app.store.database.database import Database, Unavailable
from app.store.fleet import observed
from simulation import world as worlds
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.gateway import Gateway
from simulation.fleet.messages import Post
from simulation.limits import TRUTHS
from simulation.serving.saves import SharedSaves
from simulation.shapes import moving, noisy
from simulation.truth.memory import recall, remember
from simulation.truth.physics import Physics
from simulation.truths import TruthOrder

TICK_SECONDS = 0.25
LOOK_SECONDS = 3.0
NOTE_SECONDS = 5.0
NOISE_SHARE = 0.02
MOST_PER_SECOND = 100_000.0  # requests of a service: more than such GPUs answer, and each takes memory here

log = logging.getLogger(__name__)


class WallClock(Clock):
    """This machine's time, read once a tick."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))
        self._zero = time.monotonic()

    def catch_up(self) -> None:
        self.seconds = time.monotonic() - self._zero


class Live:
    """The fleet, and the schedule of its tasks."""

    def __init__(
        self,
        database: Database,
        nodes: frozenset[str],
        left_out: frozenset[str],
        physics: Physics | None,
        memory: Path | None,
        checkpoints: Path | None = None,
    ) -> None:
        self.database = database
        self.physics, self._memory = physics, memory
        if physics is not None and memory is not None:
            recall(physics, memory)
        self.clock = WallClock()
        self._version = -1
        world = database.read(worlds.read_store)
        truth = worlds.truth_of(world, physics=physics)
        self._remember()
        others = left_out | (truth.problem.nodes.keys() - nodes)
        saves = None if checkpoints is None else SharedSaves(checkpoints)
        self.fleet = SimulatedFleet(truth, self.clock, left_out=others, patient=True, saves=saves)
        started = int(time.time())  # as with a real agent: the reports of an earlier run do not count as newer
        for node in self.fleet.nodes.values():
            node.memory.incarnation = started
        self.post = Post(self.fleet, database)
        self.gateway = Gateway(self.fleet, database)
        self._look_at = self._note_at = 0.0

    def tick(self) -> None:
        self.clock.catch_up()
        now = self.clock.seconds
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._look()
        self.fleet.tick()
        self.gateway.count()  # before anything that needs the database: a tick left out would look like a burst
        self.post.deliver()
        self.post.collect()
        self.gateway.report()
        if now >= self._note_at:
            self._note_at = now + NOTE_SECONDS
            self.database.write(device_status.update_device_statuses)
            since = self.post.intake.stored_since
            if since is not None:
                self.database.write(lambda connection: reporting_condition.update_reporting(connection, since))

    def _look(self) -> None:
        """Reads the declared world; new services get a moving load too."""
        version, _ = self.database.read(observed.object_version)
        if version == self._version:
            return
        self._version = version
        self.fleet.follow(worlds.truth_of(self.database.read(worlds.read_store), physics=self.physics))
        self._remember()
        for name, rate in self.fleet.declared.items():
            if rate > MOST_PER_SECOND:
                log.warning("%s: clients send %g requests/s at most, not the declared %g", name, MOST_PER_SECOND, rate)
                self.fleet.declared[name] = MOST_PER_SECOND
            if name not in self.fleet.shapes:
                self.fleet.shapes[name] = noisy(moving(sum(map(ord, name))), NOISE_SHARE, name)

    def _remember(self) -> None:
        if self.physics is not None and self._memory is not None:
            remember(self.physics, self._memory)


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation.live", description=__doc__)
    parser.add_argument("nodes", nargs="*")
    parser.add_argument("--left-out", action="append", default=[])
    parser.add_argument("--truth", choices=TRUTHS, default="planner")
    parser.add_argument("--truth-seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--memory", type=Path, help="file that keeps the scale of models")
    parser.add_argument("--checkpoints", type=Path, help="folder of jobs' saves, which a real node shares")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s fleet %(levelname)s %(message)s")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    database = Database(os.environ["DATABASE_URL"], pool_size=2, direct=True)
    nodes = frozenset(args.nodes or sys.stdin.read().split())
    physics = TruthOrder(args.truth, args.truth_seed, args.data).physics()
    live = Live(
        database, nodes, frozenset(args.left_out), physics=physics, memory=args.memory, checkpoints=args.checkpoints
    )
    while not stopped.is_set():
        began = time.monotonic()
        try:
            live.tick()
        except Unavailable as error:  # like any agent, it continues and reports later
            log.warning("the database is unavailable: %s", error)
            stopped.wait(1.0)
        stopped.wait(max(0.0, TICK_SECONDS - (time.monotonic() - began)))
    database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
