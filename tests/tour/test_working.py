"""What is no ordinary service: a job that gives way and goes on, and a language model that streams."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.tour.running import TourFleet
from tests.tour.world import language_model, served, serving, training

pytestmark = pytest.mark.timeout(240)  # the fleet comes to rest several times


def test_a_job_gives_way_to_a_service_and_goes_on_from_its_last_save(fleet: TourFleet) -> None:
    with fleet.declared(training("learn", "lab", "h100-80gb", 45.0)):
        fleet.until(lambda: fleet.steps("lab/learn") > 0, "the job makes progress")
        rival = serving("large", "h100-80gb", 50.0)
        with fleet.declared(*rival, served("rival", "lab", "large", priority=900)):
            fleet.until(lambda: bool(fleet.copies("lab/rival")), "the service has its place")
            fleet.until(lambda: fleet.phase("lab/learn") == "preempted", "the job waits")
            done = fleet.steps("lab/learn")
            assert done > 0
            assert not any("learn" in copy for copy in fleet.agents["lake"].copies())
        fleet.until(lambda: fleet.phase("lab/learn") == "running", "the job runs again")
        fleet.until(lambda: fleet.steps("lab/learn") > done, "it goes on from where it was")
        assert any("learn" in copy for copy in fleet.agents["lake"].copies())


def test_a_language_model_gets_a_whole_gpu_and_streams_its_tokens(fleet: TourFleet) -> None:
    with fleet.declared(*language_model("llama", "writer")):
        fleet.until(lambda: bool(fleet.copies("writer/llama")), "it is served")
        (copy,) = fleet.copies("writer/llama")
        assert copy.node == "lake"
        asked = {"model": "llama", "prompt": "why share a GPU?", "max_tokens": 12, "stream": True}
        request = urllib.request.Request(f"http://{copy.address}/v1/completions", json.dumps(asked).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            lines = [line.decode().strip() for line in answer if line.startswith(b"data:")]
        assert lines[-1] == "data: [DONE]"
        assert sum(bool(json.loads(line[5:])["choices"]) for line in lines[:-1]) >= 12
