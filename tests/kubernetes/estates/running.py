"""Puts a drawn estate into a real API server and a real Prometheus, and runs the verb over both."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from cli.main import main
from clusters.metrics.measuring import STEP_SECONDS
from tests.clusters.history import SCRAPE_SECONDS, prometheus_with
from tests.kubernetes.cluster import User
from tests.kubernetes.estates.drawing import DrawnEstate
from tests.kubernetes.estates.past import past_of
from tests.kubernetes.estates.proof import Judgement, judge
from tests.kubernetes.filling import ALL_LISTS, RecordedCluster

_NUMBERS = count(1)


@dataclass(frozen=True)
class AssessedEstate:
    """The words by which the verb reads one: as a user, with its prices and its Prometheus."""

    words: tuple[str, ...]

    def run(self, *more: str) -> tuple[int, str]:
        """Returns the exit status and what was printed."""
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with redirect_stdout(printed):
            code = main(["assess", *self.words, *more])
        printed.seek(0)
        return code, printed.read()


@contextmanager
def measured_estate(estate: DrawnEstate, user: User, folder: Path, ahead_seconds: int = 0) -> Iterator[AssessedEstate]:
    """Gives the estate a Prometheus that has seen its past until now, or until another moment."""
    stop = time.time() // STEP_SECONDS * STEP_SECONDS  # so that steps are the same whenever this runs
    stop += ahead_seconds
    start = stop - estate.minutes * SCRAPE_SECONDS
    prices = folder / "prices.yaml"
    prices.write_text(estate.price_file)
    with prometheus_with(past_of(estate, start), folder, start, stop) as url:
        hours = (estate.minutes - 60) // 60  # rates of the first step need samples before it
        yield AssessedEstate(
            ("--kubeconfig", str(user.kubeconfig), "--prices", str(prices), "--prometheus", url, "--from", f"{hours}h")
        )


def prove(estate: DrawnEstate, cluster: RecordedCluster, folder: Path) -> Judgement:
    """Records the estate, assesses it as somebody who may only read, and judges what came out and what was asked."""
    with cluster.filled(list(estate.items)):
        user = cluster.add_reader(f"reader-{next(_NUMBERS)}", ALL_LISTS)
        began = cluster.server.audit.mark()
        with measured_estate(estate, user, folder) as assessed:
            code, printed = assessed.run("-o", "json")
        assert code == 0, printed
        found = judge(estate, cluster.administered.read("get", "nodes,pods", "-A")["items"], json.loads(printed))
    writes = cluster.server.audit.writes(user.name, began)
    assert set(cluster.server.audit.verbs(user.name, began)) == {"list"}, writes
    return found
