"""Records and checks histories: `python -m tests.proofs.histories --histories 1000`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.proofs.histories.check import check
from tests.proofs.histories.record import record, town
from tests.support.postgres import postgres_of_the_wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    asked = parser.parse_args()
    began, anomalies, calls, unknown, events, decisions, polls = time.monotonic(), 0, 0, 0, 0, 0, 0
    with (
        TemporaryDirectory() as folder,
        postgres_of_the_wheel(Path(folder) / "postgres") as server,
        town(server.create()) as made,
    ):
        for seed in range(asked.seed, asked.seed + asked.histories):
            history = record(made, seed)
            calls += len(history.writes) + len(history.reads)
            unknown += sum(not write.versions and not write.is_refused for write in history.writes)
            events += sum(len(log.events) for log in history.watches)
            decisions += len(history.decisions)
            polls += sum(map(len, history.polls.values()))
            for anomaly in check(history):
                anomalies += 1
                print(f"history {seed}: {anomaly.kind}: {anomaly.what}", flush=True)
    print(
        f"{asked.histories} histories in {time.monotonic() - began:.0f} s: {calls} calls, {unknown} of them without an "
        f"answer, {events} events of watches, {decisions} decisions, {polls} polls; {anomalies} anomalies"
    )
    return min(1, anomalies)


if __name__ == "__main__":
    sys.exit(main())
