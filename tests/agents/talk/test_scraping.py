"""Figures that make sense are used; others are dropped and counted, and spoil nothing else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract.fields import LATENCY_EDGES_MS
from agents.prometheus.reading import LARGEST_VALUE, MOST_SAMPLES, histogram, read
from agents.seams.traffic import Served
from agents.talk.scraping import read_served

VLLM = b"""# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency in seconds.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="org/m"} 61.5
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="org/m"} 4.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.5",model_name="org/m"} 9.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="org/m"} 10.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="org/m"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="org/m"} 2.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="org/m"} 1.0
vllm:request_success_created{engine="0",finished_reason="stop",model_name="org/m"} 1.7e+09
vllm:num_requests_running{engine="0",model_name="org/m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="org/m"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 5.0
"""
TRITON = b"""# TYPE nv_inference_request_success counter
nv_inference_request_success{model="a",version="1"} 100
nv_inference_request_success{model="a",version="2"} 20
nv_inference_request_failure{model="a",reason="OTHER",version="1"} 3
nv_inference_request_failure{model="a",reason="REJECTED",version="1"} 1
nv_inference_count{model="a",version="1"} 360
nv_inference_exec_count{model="a",version="1"} 90
nv_inference_pending_request_count{model="a",version="1"} 4
nv_inference_first_response_histogram_ms_count{model="a",version="1"} 120
nv_inference_first_response_histogram_ms_bucket{model="a",version="1",le="100"} 90
nv_inference_first_response_histogram_ms_bucket{model="a",version="1",le="500"} 118
nv_inference_first_response_histogram_ms_bucket{model="a",version="1",le="+Inf"} 120
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 9e9
"""


def scraped(kind: str, text: bytes) -> Served:
    served = read_served(kind, text)
    assert served is not None
    return served


def by_edge(counts: tuple[int, ...]) -> dict[float, int]:
    edges = [*LATENCY_EDGES_MS, math.inf]
    return {edges[at]: count for at, count in enumerate(counts) if count}


def test_vllm_is_read() -> None:
    served = scraped("vllm", VLLM)
    assert (served.counters.requests, served.counters.errors) == (10, 1)
    assert (served.batch_mean, served.queue, served.dropped) == (3, 5, 0)
    slowest = by_edge(served.counters.latency_counts)
    assert list(slowest.values()) == [4, 5, 1]
    assert math.inf in slowest


def test_triton_is_read_over_all_versions() -> None:
    served = scraped("triton", TRITON)
    assert (served.counters.requests, served.counters.errors) == (124, 4)
    assert (served.batch_mean, served.batches, served.queue, served.dropped) == (4.0, 90, 4, 0)
    assert sum(served.counters.latency_counts) == 120


def test_another_kind_is_not_read() -> None:
    assert read_served("other", TRITON) is None


def test_an_empty_scrape_means_unknown() -> None:
    for kind in ("gpuwright", "triton", "vllm"):
        assert scraped(kind, b"") == Served(scraped(kind, b"").counters)


ODD = b"NaN nan +Inf -Inf infinity -1 -0.5 1e308 1e400 x 1_000 0x10 \xff".split()


@pytest.mark.parametrize("value", [*ODD, b"", b"5 6 7", "\u0661".encode()])
def test_case_17_what_is_no_amount_is_dropped_and_counted(value: bytes) -> None:
    good = b'vllm:num_requests_waiting{m="a"} 5\n'
    served = scraped("vllm", good + b'vllm:num_requests_waiting{m="b"} ' + value + b"\n")
    assert (served.queue, served.dropped) == (5, 1)


@pytest.mark.parametrize(
    "labels",
    ['{m="a"', '{m="a}', '{m="a\\', "{m=a}", "{m}", '{="', "{" + 'm="a",' * 2000 + "}", '{m="' + "a" * 5000 + '"}'],
)
def test_labels_that_cannot_be_read_drop_their_line_alone(labels: str) -> None:
    served = scraped("vllm", f'vllm:num_requests_waiting{labels} 9\nvllm:num_requests_running{{m="a"}} 3\n'.encode())
    assert (served.queue, served.batch_mean, served.dropped) == (None, 3, 1)


def test_labels_may_hold_anything_escaped() -> None:
    served = scraped(
        "vllm", b'vllm:request_success_total{m="a \\"b\\" } {\\\\", finished_reason="abort",} 2 1700000000\r\n'
    )
    assert (served.counters.requests, served.counters.errors, served.dropped) == (2, 2, 0)


def test_a_figure_whose_name_only_begins_like_one_is_another() -> None:
    served = scraped("vllm", b"vllm:num_requests_waiting_by_reason 9\nvllm:num_requests_waiting 1\n")
    assert served.queue == 1


def test_a_bucket_that_falls_or_has_no_edge_is_dropped_and_the_rest_adds_up() -> None:
    text = "".join(
        f'vllm:e2e_request_latency_seconds_bucket{{le="{edge}"}} {count}\n'
        for edge, count in [("0.1", 5), ("0.2", 3), ("NaN", 9), ("x", 9), ("-1", 9), ("1", 8), ("+Inf", 10)]
    )
    served = scraped("vllm", text.encode())
    assert served.dropped == 4
    assert list(by_edge(served.counters.latency_counts).values()) == [5, 3, 2]


def test_a_flood_of_wanted_lines_is_cut() -> None:
    served = scraped("vllm", b"vllm:num_requests_waiting 1\n" * (MOST_SAMPLES + 5))
    assert (served.queue, served.dropped) == (MOST_SAMPLES, 5)


@given(st.dictionaries(st.floats(0.01, 1e6), st.integers(0, 1000), max_size=20))
def test_a_histogram_never_looks_faster_than_it_was(latencies: dict[float, int]) -> None:
    """For any edges of a source: the share within any edge of ours is at most what the source can prove."""
    total, lines = 0, []
    for edge in sorted(latencies):
        total += latencies[edge]
        lines.append(f'h_bucket{{le="{edge!r}"}} {total}')
    samples, dropped = read("\n".join(lines).encode(), frozenset({"h_bucket"}))
    counts, odd = histogram(samples, "h", 1.0)
    assert dropped == odd == 0
    assert sum(counts) == total
    for at, edge in enumerate(LATENCY_EDGES_MS):
        proved = sum(count for latency, count in latencies.items() if latency <= edge * (1 + 1e-6))
        assert sum(counts[: at + 1]) <= proved


@given(st.binary(max_size=500), st.sampled_from(["gpuwright", "triton", "vllm"]))
def test_no_text_is_too_strange(text: bytes, kind: str) -> None:
    names = {
        "gpuwright": b"gpuwright_serve_queue",
        "triton": b"nv_inference_count",
        "vllm": b"vllm:num_requests_waiting",
    }
    served = scraped(kind, text + b"\n" + names[kind] + text)
    for figure in (served.queue, served.batch_mean, served.batches):
        assert figure is None or 0 <= figure <= LARGEST_VALUE * 500
