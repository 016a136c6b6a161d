"""Reports of other tools: what is read of each, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.campaigns.reports import Figures, ReportRefused, ToolReport, read_report

PERF_ANALYZER = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
2,250.5,40,700,3900,110,3700,60,5,7900,8100,8200,8400
1,240.1,38,690,50,100,3600,50,4,4100,4300,4400,4600
"""
VERBOSE = """\
Concurrency,Inferences/Second,Client Send,Server Queue,Server Compute Input,Server Compute Infer,\
Server Compute Output,Client Recv,p50 latency,Avg latency,Avg GPU Utilization,Avg GPU Power Usage,\
Max GPU Memory Usage,Total GPU Memory
1,240.1,38,50,100,3600,50,4,4100,4200,GPU-1a:0.9;,GPU-1a:180;,GPU-1a:2147483648;,GPU-1a:17179869184;
"""
MODEL_ANALYZER = """\
Model,Batch,Concurrency,Model Config Path,Instance Group,Satisfies Constraints,Throughput (infer/sec),\
Avg Latency (ms),p99 Latency (ms),Server Compute Infer time (ms),GPU Memory Usage (MB)
resnet,8,4,resnet_config_0,1:GPU,Yes,500,64,70,15.5,2000
resnet,8,1,resnet_config_0,1:GPU,Yes,480,17,18,15.0,1900
resnet,1,1,resnet_config_0,1:GPU,Yes,120,8,9,,1500
"""
GENAI_PERF: dict[str, Any] = {
    "request_latency": {"unit": "ms", "avg": 812.5, "p99": 900.0, "std": 20.5},
    "request_count": {"unit": "count", "avg": 40.0},
    "input_config": {"model": ["llama"], "perf_analyzer": {"stimulus": {"concurrency": 4}}},
}


def figures(text: str, batch: int | None = None) -> list[Figures]:
    return read_report(ToolReport("report", text, batch))


def test_of_perf_analyzer_the_row_of_least_load_counts_by_the_servers_own_clock() -> None:
    for text, memory_gib in ((PERF_ANALYZER, 0.0), (VERBOSE, 2.0)):
        (found,) = figures(text, 4)
        assert (found.batch, found.memory_gib, found.source) == (4, memory_gib, "server")
        assert found.latency_ms == pytest.approx(3.75)


def test_without_compute_times_the_clients_mean_counts() -> None:
    text = "Request Rate,Inferences/Second,Avg latency\n100,99,4200\n"
    (found,) = figures(text, 2)
    assert (found.batch, found.source) == (2, "client")
    assert found.latency_ms == pytest.approx(4.2)


def test_of_model_analyzer_each_batch_is_read() -> None:
    one, eight = figures(MODEL_ANALYZER)
    assert (one.batch, one.latency_ms, one.source) == (1, 8.0, "client")
    assert (eight.batch, eight.latency_ms, eight.source) == (8, 15.0, "server")
    assert eight.memory_gib == pytest.approx(1900e6 / 2**30)


def test_of_genai_perf_the_concurrency_is_the_batch() -> None:
    assert figures(json.dumps(GENAI_PERF)) == [Figures(4, 812.5, 20.5, 40, "client")]
    older = GENAI_PERF | {"input_config": {"concurrency": 2}, "request_latency": {"unit": "us", "avg": 5000.0}}
    assert figures(json.dumps(older)) == [Figures(2, 5.0, 0.0, 40, "client")]
    assert figures(json.dumps(GENAI_PERF | {"input_config": {}}), 8)[0].batch == 8


@pytest.mark.parametrize(
    ("text", "batch", "words"),
    [
        (PERF_ANALYZER, None, "--batches"),
        (PERF_ANALYZER.replace("3600", "fast"), 1, "'fast'"),
        (PERF_ANALYZER.replace("3600", "-1"), 1, "from 0 to 1e12"),
        (PERF_ANALYZER.replace("3600", "nan"), 1, "from 0 to 1e12"),
        ("Concurrency,Inferences/Second,p50 latency\n1,2,3\n", 1, "Server Compute Infer"),
        ("Concurrency,Inferences/Second,p50 latency\n", 1, "no rows"),
        ("Concurrency,Inferences/Second,p50 latency\n1,2\n", 1, "number of columns"),
        ("Concurrency,Inferences/Second,p50 latency\n1,2,3,4\n", 1, "number of columns"),
        ("a,b\n1,2\n", 1, "perf_analyzer"),
        ("", 1, "no rows"),
        (MODEL_ANALYZER.replace("resnet,1,", "other,1,"), None, "several models"),
        (MODEL_ANALYZER.replace("resnet,1,", "resnet,1.5,"), None, "1..256"),
        (MODEL_ANALYZER.replace("resnet,1,", "resnet,512,"), None, "1..256"),
        ("{", None, "no JSON"),
        ("{}", None, "request_latency.avg"),
        ("[]", None, "request_latency.avg"),
        (json.dumps(GENAI_PERF | {"request_latency": {"unit": "weeks", "avg": 1}}), None, "ms, us, ns, s"),
        (json.dumps(GENAI_PERF | {"request_latency": {"unit": "ms", "avg": True}}), None, "True"),
        (json.dumps(GENAI_PERF | {"request_latency": {"unit": "ms", "avg": 0}}), None, "is 0"),
        (json.dumps(GENAI_PERF | {"input_config": None}), None, "--batches"),
    ],
)
def test_a_report_that_cannot_be_used_is_refused_by_name(text: str, batch: int | None, words: str) -> None:
    with pytest.raises(ReportRefused) as refused:
        figures(text, batch)
    assert str(refused.value).startswith("report: ")
    assert words in str(refused.value)
