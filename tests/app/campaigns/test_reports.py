"""Reports of other tools: what is read of each, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.campaigns.reports import Figures, ReportRefused, ToolReport, add_memory, read_report

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
# As --collect-metrics --verbose-csv writes it: rows end with a comma, the header does not.
WITH_METRICS = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,\
request/response,response wait,Avg GPU Utilization,Avg GPU Power Usage,Max GPU Memory Usage,Total GPU Memory
1,240.1,38,690,50,100,3600,50,4,4100,4300,4400,4600,4200,42,4158,\
GPU-1a:0.9;GPU-2b:0;,GPU-1a:180;GPU-2b:20;,GPU-1a:2147483648;GPU-2b:1048576;,GPU-1a:17179869184;GPU-2b:17179869184;,
"""
# As model analyzer writes them without further options: no mean latency, several configurations, the best first.
INFERENCE = """\
Model,Batch,Concurrency,Model Config Path,Instance Group,Max Batch Size,Satisfies Constraints,\
Throughput (infer/sec),p99 Latency (ms)
resnet,1,2,resnet_config_3,2:GPU,1,Yes,260.0,9.0
resnet,8,2,resnet_config_1,1:GPU,8,Yes,640.0,26.0
resnet,8,1,resnet_config_1,1:GPU,8,Yes,500.0,17.0
resnet,1,2,resnet_config_1,1:GPU,8,Yes,210.0,10.0
resnet,1,1,resnet_config_1,1:GPU,8,Yes,125.0,9.0
"""
GPUS = """\
Model,GPU UUID,Batch,Concurrency,Model Config Path,Instance Group,Satisfies Constraints,GPU Memory Usage (MB),\
GPU Utilization (%),GPU Power Usage (W)
resnet,GPU-1a,8,1,resnet_config_1,1:GPU,Yes,2000.0,40.0,95.0
resnet,GPU-1a,1,1,resnet_config_1,1:GPU,Yes,1500.0,14.4,82.2
"""
REQUEST_RATE = INFERENCE.replace("Concurrency", "Request Rate")
AIPERF: dict[str, Any] = {
    "request_latency": {"unit": "ms", "avg": 640.0, "p50": 630.0, "p99": 700.0, "std": 12.0},
    "request_count": {"unit": "requests", "avg": 64.0},
    "input_config": {"endpoint": {"model_names": ["llama"]}, "loadgen": {"concurrency": 16, "request_rate": None}},
}
VLLM: dict[str, Any] = {
    "date": "20260101-101010", "backend": "vllm", "model_id": "llama", "num_prompts": 80, "request_rate": "inf",
    "burstiness": 1.0, "max_concurrency": 8, "duration": 41.0, "completed": 80, "total_output_tokens": 10240,
    "mean_ttft_ms": 90.0, "mean_tpot_ms": 28.0, "mean_e2el_ms": 3700.0, "std_e2el_ms": 55.0, "p99_e2el_ms": 3900.0,
}  # fmt: skip
MLPERF = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : MultiStream
Mode     : PerformanceOnly
99th percentile latency (ns) : 21000000
Result is : VALID
  Min duration satisfied : Yes

================================================
Additional Stats
================================================
Per-query latency:
Min latency (ns)                : 18000000
Mean latency (ns)               : 19500000

================================================
Test Parameters Used
================================================
samples_per_query : 8
target_qps : 20
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


def test_rows_that_end_with_a_comma_are_read_with_the_memory_of_their_gpus() -> None:
    assert figures(WITH_METRICS, 1) == [Figures(1, 3.75, source="server", memory_gib=2.0)]


def test_without_a_mean_latency_it_follows_from_the_throughput_of_a_closed_loop() -> None:
    one, eight = figures(INFERENCE)
    assert (one.batch, one.latency_ms, one.source) == (1, 8.0, "client")
    assert (eight.batch, eight.latency_ms) == (8, 16.0)


def test_of_several_request_rates_the_lowest_counts() -> None:
    text = "Model,Batch,Request Rate,Throughput (infer/sec),Avg Latency (ms)\nr,1,64,60,19\nr,1,16,15,12\n"
    assert figures(text)[0].latency_ms == 12


def test_a_file_of_gpus_adds_their_memory() -> None:
    one, eight = add_memory([*figures(INFERENCE), *figures(GPUS)])
    assert (one.latency_ms, eight.latency_ms) == (8.0, 16.0)
    assert [one.memory_gib, eight.memory_gib] == [pytest.approx(1500e6 / 2**30), pytest.approx(2000e6 / 2**30)]
    assert add_memory(figures(GPUS)) == []


def test_of_aiperf_and_vllm_the_concurrency_is_the_batch() -> None:
    assert figures(json.dumps(AIPERF)) == [Figures(16, 640.0, 12.0, 64, "client")]
    assert figures(json.dumps(VLLM)) == [Figures(8, 3700.0, 55.0, 80, "client")]
    assert figures(json.dumps(VLLM | {"max_concurrency": None}), 4)[0].batch == 4


def test_of_mlperf_the_queries_are_the_batches() -> None:
    assert figures(MLPERF) == [Figures(8, 19.5, source="client")]
    assert figures(MLPERF.replace("MultiStream", "Single Stream")) == [Figures(1, 19.5, source="client")]


@pytest.mark.parametrize(
    ("text", "batch", "words"),
    [
        (PERF_ANALYZER, None, "--batches"),
        (PERF_ANALYZER.replace("3600", "fast"), 1, "'fast'"),
        (PERF_ANALYZER.replace("3600", "-1"), 1, "from 0 to 1e12"),
        (PERF_ANALYZER.replace("3600", "nan"), 1, "from 0 to 1e12"),
        (PERF_ANALYZER.replace("3600", "3_600"), 1, "from 0 to 1e12"),
        (json.dumps(GENAI_PERF | {"request_latency": {"avg": 10**400}}), 1, "from 0 to 1e12"),
        ("Concurrency,Inferences/Second,p50 latency\n1,2,3\n", 1, "Server Compute Infer"),
        ("Concurrency,Inferences/Second,p50 latency\n", 1, "no rows"),
        ("Concurrency,Inferences/Second,p50 latency\n1,2\n", 1, "number of columns"),
        ("Concurrency,Inferences/Second,p50 latency\n1,2,3,4\n", 1, "number of columns"),
        ("a,b\n1,2\n", 1, "perf_analyzer"),
        ("", 1, "no rows"),
        (MODEL_ANALYZER.replace("resnet,1,", "other,1,"), None, "several models"),
        (MODEL_ANALYZER.replace("resnet,1,", "resnet,1.5,"), None, "1..256"),
        (MODEL_ANALYZER.replace("resnet,1,", "resnet,512,"), None, "1..256"),
        (REQUEST_RATE, None, "neither the column 'Server Compute Infer time (ms)' nor 'Avg Latency (ms)'"),
        (INFERENCE.replace("125.0", "0"), None, "Throughput (infer/sec) is 0"),
        (WITH_METRICS.replace("69184;,", "69184;,1"), 1, "number of columns"),
        (json.dumps({**VLLM, "mean_e2el_ms": None}), None, "--percentile-metrics"),
        (json.dumps({**VLLM, "mean_e2el_ms": 0}), None, "is 0"),
        (json.dumps({**VLLM, "max_concurrency": None}), None, "--max-concurrency"),
        (MLPERF.replace("MultiStream", "Server"), None, "allowed: SingleStream, MultiStream"),
        (MLPERF.replace("Mean latency", "Other latency"), None, "measures no times"),
        (MLPERF.replace("19500000", "0"), None, "is 0"),
        (MLPERF.replace("samples_per_query : 8", ""), None, "Samples per query"),
        ("{", None, "no JSON"),
        ("{}", None, "request_latency.avg"),
        ("[]", None, "request_latency.avg"),
        (json.dumps(GENAI_PERF | {"request_latency": {"unit": "weeks", "avg": 1}}), None, "ms, us, ns, s"),
        (json.dumps(GENAI_PERF | {"request_latency": {"unit": ["ms"], "avg": 1}}), None, "ms, us, ns, s"),
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
