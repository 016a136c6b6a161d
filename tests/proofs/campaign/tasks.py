"""Runs several campaigns at once, each in a process and on a database of its own."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.proofs.campaign.running import CampaignResult, run_campaign
from tests.support.postgres import DatabaseServer


@dataclass(frozen=True, slots=True)
class Task:
    """One campaign: of the whole product, or without a defence."""

    seed: int
    faults: int
    removal: str = ""

    def run(self, database_url: str, folder: Path) -> tuple[CampaignResult, float]:
        """Returns what was found, and the CPU seconds of this process."""
        logging.disable(logging.CRITICAL)  # every fault is logged by the product, thousands of times
        started = time.process_time()
        result = run_campaign(database_url, folder, self.seed, self.faults, self.removal)
        return result, time.process_time() - started

    def describe(self, result: CampaignResult, cpu_seconds: float) -> str:
        name = f"without {self.removal}" if self.removal else "whole"
        return (
            f"{name}, seed {self.seed}: {result.faults} faults of {len(result.kinds)} kinds, "
            f"{len(result.pairs)} pairs, {result.virtual_seconds / 3600:.2f} virtual hours, {result.checks} checks, "
            f"{len(result.violations)} violations, {cpu_seconds:.0f} CPU s"
        )


def run_tasks(
    tasks: Collection[Task], processes: int, server: DatabaseServer, folder: Path
) -> Iterator[tuple[Task, CampaignResult]]:
    """Runs the campaigns, each with a database of its own, and yields what they found as they end."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawning, max_tasks_per_child=1) as pool:
        started = {
            pool.submit(task.run, server.create(), folder / f"{task.removal or 'whole'}-{task.seed}"): task
            for task in tasks
        }
        for future in as_completed(started):
            result, cpu_seconds = future.result()
            print(started[future].describe(result, cpu_seconds), flush=True)
            yield started[future], result
