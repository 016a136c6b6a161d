"""Proves `assess` on many drawn estates: `python -m tests.kubernetes.estates --gpus 40 150 400 --loads FOLDER`.

It prints a row for each, and ends with 1 if the bill is wrong anywhere or an SLO that was kept would be missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.kubernetes.estates.drawing import KINDS, draw_estate
from tests.kubernetes.estates.running import prove
from tests.kubernetes.estates.shapes import read_shapes
from tests.kubernetes.filling import RecordedCluster
from tests.kubernetes.server import running_api_server

ROW = "{:11} {:>4} {:>4} {:>10} {:>7} {:>7} {:>9} {:>5} {:>5} {:>5} {:>7} {:>6} {:>6}  {}"
HEADINGS = (
    "KIND", "GPUS", "SEED", "PAID", "L0 %", "LIMIT %", "WORKLOADS", "KEPT", "FEWER", "LOST", "NODES", "FREED", "CPU S",
    "FAULTS",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--gpus", nargs="+", type=int, default=[40], help="sizes of estates")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--days", type=float, default=1, help="of the past that Prometheus has")
    parser.add_argument("--loads", type=Path, help="folder of CSV files whose rows begin with a second and a rate")
    given = parser.parse_args()
    shapes = read_shapes(given.loads) if given.loads else ()
    faults = 0
    print(ROW.format(*HEADINGS))
    with tempfile.TemporaryDirectory() as folder, running_api_server(Path(folder)) as server:
        cluster = RecordedCluster(server)
        for kind in given.kinds:
            for gpus in given.gpus:
                for seed in given.seeds:
                    began = time.process_time()
                    estate = draw_estate(kind, gpus, seed, round(given.days * 1440) + 60, shapes)
                    with tempfile.TemporaryDirectory() as data:
                        found = prove(estate, cluster, Path(data))
                    faults += len(found.faults)
                    print(ROW.format(
                        kind, gpus, seed, found.paid, f"{found.saved_percent:.1f}", f"{found.limit_percent:.1f}",
                        found.workloads, found.kept, found.fewer, found.lost, found.nodes, found.freed,
                        f"{time.process_time() - began:.1f}", "; ".join(found.faults),
                    ), flush=True)  # fmt: skip
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
