"""An offline job under a real agent: its file is answered whole, over kills of the program and of the agent."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from agents.contract.assignments import AssignedInstance, JobTerms
from tests.agents.programs.batch.test_batch import model_stub, must_be_whole, write_requests
from tests.support.nodes import assigned, copy_of, kill, machine, ready, running
from tests.support.patience import until
from tests.support.soak import scaled

LINES = scaled(20_000, 2_000)
KILLS = scaled(20, 2)


@pytest.mark.slow
def test_an_offline_job_under_an_agent_answers_each_line_once(tmp_path: Path) -> None:
    batches = tmp_path / "batches"
    batches.mkdir()
    requests, rng = write_requests(batches / "day.jsonl", LINES), random.Random(3)
    with model_stub() as stub, machine(tmp_path) as made:
        url = stub.url.replace("/v1/double", "/shop/double/v1/double")
        args: dict[str, str | int | float | bool] = {
            "requests": str(requests.relative_to(batches)),
            "count": LINES,
            "url": url,
            "concurrency": 4,
        }
        made.template("gpuwright-batch", _rooted(batches))
        terms = JobTerms(units=LINES, failed_codes=(2,))
        job = AssignedInstance(
            "day-1",
            0,
            "lab",
            job="day",
            template="gpuwright-batch",
            args=args,
            sm_percent=10,
            memory_gib=1,
            terms=terms,
        )
        for incarnation in (1, 2):
            with running(made, incarnation=incarnation, checkpoints=tmp_path / "checkpoints") as node:
                node.offer(assigned(1, job))
                for _ in range(KILLS // 2):
                    until(lambda node=node: ready(node, "day-1"), "it runs")  # type: ignore[misc]
                    process = copy_of(node, "day-1").running
                    assert process is not None
                    goal = stub.answers + rng.randrange(20, 200)
                    until(lambda goal=goal: stub.answers >= goal, "it sends")  # type: ignore[misc]
                    time.sleep(rng.uniform(0, 0.05))
                    kill(process.pid)
                    gone = copy_of(node, "day-1").id
                    until(lambda node=node, gone=gone: gone not in [c.id for c in node.keeper.copies()], "it is gone")  # type: ignore[misc]
                if incarnation == 2:
                    until(
                        lambda node=node: {held.instance: held.missing.reason for held in node.keeper.held}  # type: ignore[misc]
                        == {"day-1": "job_done"},
                        "every line is answered", seconds=600,
                    )  # fmt: skip
        must_be_whole(requests, LINES)


def _rooted(batches: Path) -> str:
    """Returns the shipped template with this folder of batches."""
    shipped = Path(__file__).parents[2] / "agents" / "templates" / "gpuwright-batch.yaml"
    return shipped.read_text().replace("../batches", str(batches))
