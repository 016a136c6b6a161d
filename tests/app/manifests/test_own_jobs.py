"""How a job is run: what may be declared, and what is refused with what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.contract.assignments import JobTerms
from app.control.decide.job_terms import job_terms
from app.control.domain.specs import job_template
from app.manifests.reader import API, read
from app.manifests.validate import validate
from tests.support.world import gpu_type, job

OFFLINE = {
    "type": "offline",
    "steps": None,
    "profiles": {"v100-16gb": {"requestsPerSecond": {"50": 9}, "memoryGib": 1}},
}


def faults(**spec: Any) -> list[str]:
    """Returns the faults of a job of which these fields are given; None takes one away."""
    declared = job("tune", "lab", **spec)
    declared["spec"] = {name: value for name, value in declared["spec"].items() if value is not None}
    _, found = validate(read(json.dumps([gpu_type(), declared]).encode(), "json", API, "job.json"))
    return [f"{fault.field}: {fault}" for fault in found]


def test_a_job_of_ones_own_may_say_all_of_it() -> None:
    assert faults(
        runtime={"command": ["{python}", "/opt/train.py"], "args": ["--fast"], "env": {"SEED": "1"}},
        retries=0, exitCodes={"done": [0, 7], "failed": [2]},
        checkpoint={"signal": "SIGUSR1", "command": ["/opt/save"], "seconds": 60},
        progress={"metric": "my_steps_total", "savedMetric": "my_saved"},
    ) == []  # fmt: skip
    assert faults(**OFFLINE, requests="prompts/monday.jsonl", requestCount=5) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"retries": -1}, "spec.retries"),
        ({"exitCodes": {"done": [256]}}, "spec.exitCodes.done[0]"),
        ({"exitCodes": {"done": [3], "failed": [3]}}, "exit code 3 is both done and failed"),
        ({"checkpoint": {"signal": "SIGKILL"}}, "spec.checkpoint.signal"),
        ({"checkpoint": {"seconds": 0}}, "spec.checkpoint.seconds"),
        ({"checkpoint": {"command": ["/opt/save"]}}, "a command can save only beside a runtime that is a command"),
        ({"progress": {"metric": "a b"}}, "spec.progress.metric"),
        ({"runtime": {"command": ["/opt/t"], "drain": {"seconds": 5}}}, "a job takes no requests, so it has no drain"),
        ({"runtime": {}}, "a runtime has exactly one form"),
        ({"requestCount": 5}, "requestCount counts the lines of a file of requests"),
        ({**OFFLINE, "requests": "day.jsonl"}, "a job whose requests are a file needs requestCount"),
        ({**OFFLINE, "requests": "s3://lake/day.jsonl", "requestCount": 5}, "nodes do not read requests from object"),
        (
            {**OFFLINE, "requests": "../day.jsonl", "requestCount": 5},
            "is not a file below the node's folder",
        ),
        ({**OFFLINE, "requests": "/etc/passwd", "requestCount": 5}, "is not a file below the node's folder"),
        ({**OFFLINE, "requests": 0}, "spec.requests"),
        ({**OFFLINE, "requests": True}, "spec.requests"),
        ({**OFFLINE, "requests": "d", "requestCount": 1, "runtime": {"command": ["/b"]}}, "finds its requests itself"),
    ],
)
def test_what_cannot_be_is_refused_and_named(spec: dict[str, Any], expected: str) -> None:
    assert expected in "\n".join(faults(**spec))


def test_the_terms_of_a_job_travel_with_their_defaults() -> None:
    plain = job("tune", "lab")["spec"]
    assert job_terms(plain) == JobTerms(units=200_000)
    assert job_template(plain) == "gpuwright-train"
    batch = {**plain, "type": "offline", "requests": "day.jsonl", "requestCount": 7}
    assert job_terms(batch) == JobTerms(units=7, failed_codes=(2,))
    assert job_template(batch) == "gpuwright-batch"
    assert job_template({**plain, "runtime": {"command": ["/opt/t"]}}) == ""
