"""Servers of language models are read by the names in their source or documentation. None of the three was run here."""

from __future__ import annotations

import math

import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from agents.seams.traffic import Served
from agents.talk.scraping import read_served

VLLM = b"""# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="org/m"} 12000.0
vllm:generation_tokens_total{engine="0",model_name="org/m"} 3400.0
vllm:num_requests_running{engine="0",model_name="org/m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="org/m"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/m"} 0.42
vllm:request_success_total{engine="0",finished_reason="length",model_name="org/m"} 20.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="org/m"} 15.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="org/m"} 19.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="org/m"} 20.0
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.025",model_name="org/m"} 12.0
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="+Inf",model_name="org/m"} 20.0
"""
SGLANG = b"""# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="org/m"} 8.128902e+06
sglang:generation_tokens_total{model_name="org/m"} 7.557572e+06
sglang:token_usage{model_name="org/m"} 0.28
sglang:num_running_reqs{model_name="org/m"} 7.0
sglang:num_queue_reqs{model_name="org/m"} 2.0
sglang:num_requests_total{model_name="org/m"} 100.0
sglang:num_aborted_requests_total{model_name="org/m"} 3.0
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="org/m"} 90.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="org/m"} 97.0
sglang:e2e_request_latency_seconds_bucket{le="4.0",model_name="org/m"} 97.0
sglang:inter_token_latency_seconds_bucket{le="0.02",model_name="org/m"} 5000.0
sglang:inter_token_latency_seconds_bucket{le="+Inf",model_name="org/m"} 5100.0
"""
TGI = b"""# TYPE tgi_request_count counter
tgi_request_count 50
tgi_request_success 47
tgi_request_failure{err="validation"} 2
tgi_request_failure{err="overloaded"} 1
tgi_batch_current_size 4
tgi_queue_size 6
tgi_request_input_length_sum 9000
tgi_request_input_length_count 50
tgi_request_generated_tokens_sum 4700
tgi_request_duration_bucket{le="1.5"} 40
tgi_request_duration_bucket{le="+Inf"} 47
tgi_request_mean_time_per_token_duration_bucket{le="0.03"} 46
tgi_request_mean_time_per_token_duration_bucket{le="+Inf"} 47
"""


def scraped(kind: str, text: bytes) -> Served:
    served = read_served(kind, text)
    assert served is not None and served.tokens is not None
    assert served.dropped == 0
    return served


def by_edge(counts: tuple[int, ...]) -> list[tuple[float, int]]:
    edges = [*LATENCY_EDGES_MS, math.inf]
    return [(edges[at], count) for at, count in enumerate(counts) if count]


@pytest.mark.parametrize(
    ("kind", "text", "requests", "now", "tokens"),
    [
        ("vllm", VLLM, (20, 0), (3, 5), (12_000, 3_400)),
        ("sglang", SGLANG, (100, 3), (7, 2), (8_128_902, 7_557_572)),
        ("tgi", TGI, (50, 3), (4, 6), (9_000, 4_700)),
    ],
)
def test_requests_tokens_and_what_runs_are_read(
    kind: str, text: bytes, requests: tuple[int, int], now: tuple[int, int], tokens: tuple[int, int]
) -> None:
    served = scraped(kind, text)
    assert served.tokens is not None
    assert (served.counters.requests, served.counters.errors) == requests
    assert (served.batch_mean, served.queue) == now
    assert (served.tokens.tokens_in, served.tokens.tokens_out) == tokens


@pytest.mark.parametrize(
    ("kind", "text", "first", "pace"),
    [("vllm", VLLM, [15, 4, 1], [12, 8]), ("sglang", SGLANG, [90, 7], [5000, 100]), ("tgi", TGI, [], [46, 1])],
)
def test_first_tokens_and_the_pace_of_the_others_are_read(
    kind: str, text: bytes, first: list[int], pace: list[int]
) -> None:
    tokens = scraped(kind, text).tokens
    assert tokens is not None
    assert [count for _, count in by_edge(tokens.first_counts)] == first
    assert [count for _, count in by_edge(tokens.pace_counts)] == pace


def test_the_pace_of_whole_requests_is_preferred_to_that_of_single_tokens() -> None:
    by_request = b"""sglang:request_time_per_output_token_seconds_bucket{is_streaming="true",le="0.02"} 50.0
sglang:request_time_per_output_token_seconds_bucket{is_streaming="false",le="0.02"} 10.0
sglang:request_time_per_output_token_seconds_bucket{is_streaming="true",le="+Inf"} 54.0
sglang:request_time_per_output_token_seconds_bucket{is_streaming="false",le="+Inf"} 11.0
"""
    tokens = scraped("sglang", SGLANG + by_request).tokens
    assert tokens is not None
    assert [count for _, count in by_edge(tokens.pace_counts)] == [60, 5]


def test_no_latency_looks_shorter_than_it_was() -> None:
    tokens = scraped("vllm", VLLM).tokens
    assert tokens is not None
    (edge, _), *_ = by_edge(tokens.pace_counts)
    assert edge >= 25.0


def test_a_server_that_counts_no_tokens_yet_has_none() -> None:
    for kind in ("vllm", "sglang", "tgi"):
        served = read_served(kind, b"")
        assert served is not None and served.tokens is None
