"""Token times are read from what load tools write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.campaigns.reports import ReportRefused, ToolReport
from app.campaigns.reports.token_times import TokenReport, read_token_times

VLLM: dict[str, Any] = {
    "mean_ttft_ms": 80.5, "mean_tpot_ms": 12.25, "completed": 200, "total_input_tokens": 204800,
    "total_output_tokens": 25600, "duration": 50.0, "request_rate": 4.0, "max_concurrency": None,
}  # fmt: skip
AIPERF: dict[str, Any] = {
    "time_to_first_token": {"unit": "ms", "avg": 80.5},
    "inter_token_latency": {"unit": "us", "avg": 12250.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "request_count": {"unit": "requests", "avg": 200.0},
    "input_config": {"loadgen": {"concurrency": 16}},
}


def read(document: object) -> TokenReport:
    return read_token_times(ToolReport("run.json", json.dumps(document)))


def test_vllm_at_a_rate_is_an_open_loop() -> None:
    assert read(VLLM) == TokenReport(80.5, 12.25, 1024.0, 128.0, rate_per_second=4.0, seconds=50.0)


@pytest.mark.parametrize("rate", ["inf", None])
def test_vllm_without_a_rate_is_a_closed_loop(rate: object) -> None:
    found = read({**VLLM, "request_rate": rate, "max_concurrency": 32})
    assert (found.concurrency, found.rate_per_second) == (32, 0.0)


def test_aiperf_states_its_concurrency_and_its_units() -> None:
    assert read(AIPERF) == TokenReport(80.5, 12.25, 1024.0, 128.0, concurrency=16)
    at_rate = {**AIPERF, "input_config": {"loadgen": {"concurrency": None, "request_rate": 4.0}}}
    assert read(at_rate) == TokenReport(80.5, 12.25, 1024.0, 128.0, rate_per_second=4.0, seconds=50.0)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({**VLLM, "request_rate": "inf"}, "neither a request_rate nor a max_concurrency"),
        ({**VLLM, "mean_tpot_ms": 0}, "mean_tpot_ms is 0; allowed is a number above 0"),
        ({**AIPERF, "input_config": {}}, "does not say its concurrency or its request_rate"),
        ({key: value for key, value in AIPERF.items() if key != "inter_token_latency"}, "no inter_token_latency.avg"),
        ({**AIPERF, "time_to_first_token": {"unit": "h", "avg": 1}}, "time_to_first_token.unit is 'h'"),
        ({**AIPERF, "time_to_first_token": {"unit": [], "avg": 1}}, r"time_to_first_token.unit is '\[\]'"),
        ({**AIPERF, "input_config": {"concurrency": 0.5}}, "concurrency is 0.5; allowed is a whole number above 0"),
        (
            {**VLLM, "total_output_tokens": 100},
            "total_output_tokens of a request is 0.5; allowed is a mean of at least 1",
        ),
        ({**VLLM, "request_rate": 0.01}, "request_rate 0.01 for 50 s is not one request"),
        ({"latency": 3}, "it has no token times"),
        ([], "it has no token times"),
    ],
)
def test_a_report_that_cannot_be_used_is_refused_with_what_is_allowed(document: object, why: str) -> None:
    with pytest.raises(ReportRefused, match=why):
        read(document)
