"""Everything is killed at random while copies come and go; then the ledger is held against the agents' own journals.

python -m tests.proofs.ledger --seconds 600 --agents 4
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sqlalchemy import text

from agents.keeper.copies import NodeCopy
from app.ledger import keeping
from app.nodes.pace import WorkPace
from app.store.database.database import Database
from tests.app.ledger.judge import EPOCH, MICROSECOND, QUARTER, Held, Paid, Priced, judged
from tests.proofs.town import RATE, Town, town, world
from tests.support.patience import until
from tests.support.postgres import postgres_of_the_wheel
from tests.support.world import gpu_type

PARTS = """
    SELECT slice, node, gpu, CASE kind WHEN 'used' THEN tenant ELSE '__' || kind || '__' END AS tenant, service,
           CAST(sum(nano) AS bigint) AS nano
    FROM allocation GROUP BY 1, 2, 3, 4, 5 HAVING sum(nano) <> 0
"""


@dataclass
class Journals:
    """Every copy that an agent ever wrote down, as it was last; read before an agent's start forgets the settled."""

    made: Town
    copies: dict[tuple[str, str], NodeCopy] = field(default_factory=dict)

    def read(self) -> None:
        for agent in self.made.agents:
            path = agent.folder / "journal.jsonl"
            for line in path.read_bytes().splitlines() if path.exists() else ():
                try:
                    copy = msgspec.json.decode(line, type=NodeCopy)
                except msgspec.DecodeError:
                    continue  # the last line may be being written
                self.copies[agent.node, copy.id] = copy


@dataclass(frozen=True)
class Verdict:
    """What the ledger says against what was."""

    copies: int
    wrong: Sequence[str]
    unmarked: int  # microseconds that nobody vouched for, and that are not marked
    slices: int


def besieged(made: Town, seconds: float, seed: int) -> Journals:
    """Kill, change what is asked and what it costs, until the time is up; then let all come to rest."""
    rng, journals = random.Random(seed), Journals(made)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        journals.read()
        made.strike(rng)
        journals.read()
        if rng.random() < 0.4:
            _ask(made, rng)
        time.sleep(rng.uniform(0.2, 2.0))
    until(made.served, f"not served again after {made.blows}")
    journals.read()
    return journals


def judged_by_journals(made: Town, journals: Journals, database_url: str, pricing: str = "node") -> Verdict:
    """Account for all of it as of two hours later, and recompute it from the journals; `pricing` is the policy's."""
    until(lambda: _acknowledged(made, journals), "the agents' usage was not all taken")
    for agent in made.agents:
        agent.end(signal.SIGKILL)
    journals.read()
    heard = {row.node: row.received_at for row in made.rows("SELECT node, received_at FROM node_state")}
    for server in made.servers:
        server.kill()
    later = datetime.now(UTC) + timedelta(hours=2)
    database = Database(database_url, pool_size=2, direct=True, moment=lambda: later)
    for _ in range(3):
        keeping.bring_up_to_date(database, WorkPace(0))
    rows = database.read(lambda c: {tuple(row[:5]): row.nano for row in c.execute(text(PARTS))})
    verdict = _compared(made, journals, heard, rows, pricing)
    database.close()
    return verdict


def _compared(
    made: Town, journals: Journals, heard: dict[str, datetime], rows: dict[tuple[Any, ...], int], pricing: str
) -> Verdict:
    told = {(row.node, row.id): row for row in made.rows("SELECT * FROM usage_interval")}
    held, wrong = [], []
    for (node, name), copy in journals.copies.items():
        if copy.started_at is None:
            continue
        row = told.pop((node, name), None)
        if row is None:
            wrong.append(f"{node} {name} began at {copy.started_at} and is not in the ledger")
            continue
        if row.ended_at != copy.ended_at and copy.acknowledged == "closed":
            wrong.append(f"{node} {name} ended at {copy.ended_at}, and in the ledger at {row.ended_at}")
        stop = row.ended_at or max(heard[node], row.started_at)
        held.append(
            Held(name, node, row.gpu, row.tenant, row.service, row.sm_percent, row.memory_gib, row.dedicated,
                 row.started_at, stop)
        )  # fmt: skip
    wrong += [f"{node} {name} is in the ledger and in no journal" for node, name in told]
    paid, prices = declared(made)
    start = EPOCH + (min(one.start for one in paid) - EPOCH) // QUARTER * QUARTER
    stops = max(key[0] for key in rows) + QUARTER
    verdict = judged(paid, prices, held, start, stops, pricing)
    wanted = {key: nano for key, nano in verdict.parts.items() if nano}
    wrong += [
        f"{key}: {rows.get(key)}, by the journals {wanted.get(key)}"
        for key in sorted(rows.keys() | wanted.keys())
        if rows.get(key) != wanted.get(key)
    ]
    return Verdict(len(held), wrong, _unmarked(made, heard, stops), len(rows))


def _unmarked(made: Town, heard: dict[str, datetime], stops: datetime) -> int:
    """Of the time after a node was heard last, what is not marked; more is as wrong as less."""
    marked = defaultdict[str, int](int)
    for row in made.rows("SELECT node, sum(gpu_microseconds) FROM allocation WHERE evidence = 'gap' GROUP BY 1"):
        marked[row[0]] = int(row[1])
    gpus = Counter(gpu.node for gpu in declared(made)[0])
    return sum(abs(gpus[node] * ((stops - at) // MICROSECOND) - marked[node]) for node, at in heard.items())


def declared(made: Town) -> tuple[list[Paid], list[Priced]]:
    always = datetime(9000, 1, 1, tzinfo=UTC)
    paid = [
        Paid(row.node, gpu, (row.gpu_type, row.region, row.purchase), row.memory_gib, row.valid_from,
             row.valid_to or always)
        for row in made.rows("SELECT * FROM gpu_owned")
        for gpu in range(row.gpus)
    ]  # fmt: skip
    prices = [
        Priced((row.gpu_type, row.region, row.purchase), row.nano_per_hour, row.valid_from, row.valid_to or always)
        for row in made.rows("SELECT * FROM price")
    ]
    return paid, prices


def _acknowledged(made: Town, journals: Journals) -> bool:
    journals.read()
    return all(
        copy.started_at is None or copy.acknowledged == ("closed" if copy.ended_at else "opened")
        for copy in journals.copies.values()
    )


def _ask(made: Town, rng: random.Random) -> None:
    """Another load, so that copies come and go, or another price."""
    service = dict(world()[-1])
    service["spec"] = {**service["spec"], "ratePerSecond": RATE * rng.choice([0.5, 1, 3, 6]),
                       "minInstances": rng.choice([2, 3])}  # fmt: skip
    asked = rng.choice([service, service, gpu_type(pricePerHour=rng.choice([1.2, 0.7, 2.5, 1 / 3]))])
    for server in made.servers:
        try:
            if server.request("POST", "/api/v1/apply", [asked]).status == 200:
                return
        except OSError:
            continue


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        url = server.create()
        folder = Path(name) / "town"
        folder.mkdir()
        with town(url, url, folder, args.agents, {"GPUWRIGHT_DATABASE_DIRECT": "1"}) as made:
            verdict = judged_by_journals(made, besieged(made, args.seconds, args.seed), url)
            print(
                f"{len(made.blows)} blows in {args.seconds:g} s: {verdict.copies} copies, {verdict.slices} parts of "
                f"slices, {len(verdict.wrong)} not as the journals have them, {verdict.unmarked} us unmarked"
            )
            for line in verdict.wrong[:10]:
                print(f"  {line}")
            return int(bool(verdict.wrong or verdict.unmarked))


if __name__ == "__main__":
    sys.exit(main())
