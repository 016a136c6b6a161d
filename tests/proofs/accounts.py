"""How long the ledger takes for a fleet's days, and that what it booked is GPU-hours x price, to the billionth.

python -m tests.proofs.accounts --days 1 --gpus 1000 --instances 3000
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from app.store.database import libpq_url
from tests.support.month import Fleet, account_for, load
from tests.support.postgres import postgres_of_the_wheel

BOOKED = """
    SELECT (SELECT count(*) FROM allocation), (SELECT sum(nano) FROM allocation), (SELECT sum(nano) FROM cost_hour),
           (SELECT sum(nano) FROM cost_day),
           (SELECT sum(gpus * nano_per_hour) * %s FROM gpu_owned JOIN price USING (gpu_type))
"""


def measured(url: str, fleet: Fleet) -> tuple[str, bool]:
    """What it took, in a sentence; and whether the money adds up."""
    started = time.perf_counter()
    count = load(url, fleet)
    loaded = time.perf_counter() - started
    seconds = account_for(url, fleet.ends + timedelta(minutes=4))
    with psycopg.connect(libpq_url(url)) as connection:
        rows, *sums = connection.execute(BOOKED, (24 * fleet.days,)).fetchone() or (0, 0, 1)
    said = (
        f"{count:,} intervals loaded in {loaded:.1f} s; accounted for in {seconds:.1f} s: {rows:,} rows, "
        f"{rows / seconds:,.0f} a second, {seconds / fleet.days:.1f} s for a day of the fleet; "
        f"slices, hours, days and GPU-hours x price: {', '.join(str(one) for one in sums)}"
    )
    return said, len(set(sums)) == 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=3000)
    args = parser.parse_args()
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        said, adds_up = measured(server.create(), Fleet(args.days, args.gpus, args.instances))
    print(said if adds_up else f"it does not add up: {said}")
    return int(not adds_up)


if __name__ == "__main__":
    sys.exit(main())
