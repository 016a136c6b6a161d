"""Runs a proof of copies that are pods.

python -m tests.proofs.pods --faults 1000 --seed 1
python -m tests.proofs.pods --demo 600
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kubernetes.kubelet.pod_node import budgeted_namespace
from tests.kubernetes.nodes import RunningCluster, running_cluster
from tests.proofs.demo_fleet import DemoSeen, run_demo
from tests.proofs.ledger import Journals, judged_by_journals
from tests.proofs.pods.agents import make_pod_node
from tests.proofs.pods.siege import besiege, end_all, pod_town
from tests.support.postgres import postgres_of_the_wheel


def show_faults(cluster: RunningCluster, url: str, folder: Path, faults: int, seed: int) -> bool:
    """Prints what came of so many faults; returns whether all held."""
    with pod_town(cluster, url, folder, 4) as made:
        journals = Journals(made)
        seen = besiege(made, faults, seed, journals, lambda text: print(text, flush=True))
        left = end_all(made)
        verdict = judged_by_journals(made, journals, url)
        order = made.out_of_order()
    print(f"{seen}; left over: {left}; plans out of order: {order}")
    print(
        f"ledger: {verdict.copies} copies, {verdict.slices} parts, {len(verdict.wrong)} not as the journals have them, "
        f"{verdict.unmarked} us unmarked"
    )
    for line in (*seen.broken[:10], *seen.list_unexplained(), *seen.lost[:10], *verdict.wrong[:10]):
        print(f"  {line}")
    return not (seen.broken or seen.unexplained or seen.lost or left or order or verdict.wrong or verdict.unmarked)


def show_demo(cluster: RunningCluster, url: str, folder: Path, seconds: float) -> bool:
    """Prints what the demo fleet did; returns whether it kept its promises and its books."""
    with budgeted_namespace(cluster) as namespace:
        seen: DemoSeen = run_demo(url, folder, seconds, make_pod_node(cluster, namespace))
    print(seen)
    return seen.is_kept


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--demo", type=float, default=0.0, metavar="SECONDS")
    args = parser.parse_args()
    kept = True
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        places = {kind: Path(name) / kind for kind in ("cluster", "town", "demo")}
        for place in places.values():
            place.mkdir()
        with running_cluster(places["cluster"]) as cluster:
            if args.faults:
                kept &= show_faults(cluster, server.create(), places["town"], args.faults, args.seed)
            if args.demo:
                kept &= show_demo(cluster, server.create(), places["demo"], args.demo)
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
