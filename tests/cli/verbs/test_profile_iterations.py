"""`gpuwright profile import --parallel`: a language model's Profile from what a load tool measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.load import LoadTest, OfferedRequests, ServerModel
from tests.cli.conftest import Run

SERVER = ServerModel(IterationCost(3.0, 0.05, 8.0, 0.03), BatchingLimits(256, 2048, 10**9))
ABOUT = ("--model", "llama/fp16", "--gpu-type", "h100", "--parallel", "2")
REST = [
    {"apiVersion": "gpuwright/v1", "kind": "GpuType", "metadata": {"name": "h100"}, "spec": {
        "memoryGib": 80, "smCount": 132, "pricePerHour": 4, "idleW": 70, "maxW": 700, "clocksMhz": [1980]}},
    {"apiVersion": "gpuwright/v1", "kind": "Model", "metadata": {"name": "llama"}, "spec": {"variants": [{
        "name": "fp16", "accuracy": 0.7, "llm": {
            "weightsGib": 15, "layers": 32, "kvBytesPerToken": 131072, "contextTokens": 8192, "parallel": [1, 2]}}]}},
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Writes what vllm bench serve would report of a known server at four concurrencies."""
    found = []
    for concurrency in (1, 4, 16, 64):
        times = OfferedRequests(LoadTest(512, 32, concurrency=concurrency)).times(SERVER)
        report = {
            "mean_ttft_ms": times.ttft_ms, "mean_tpot_ms": times.tpot_ms, "completed": 100, "duration": 60.0,
            "total_input_tokens": 51200, "total_output_tokens": 3200, "max_concurrency": concurrency,
        }  # fmt: skip
        found.append(tmp_path / f"{concurrency}.json")
        found[-1].write_text(json.dumps(report))
    return [str(file) for file in found]


def test_token_times_of_several_loads_make_a_valid_profile(run: Run, files: list[str], tmp_path: Path) -> None:
    done = run("profile", "import", *files, *ABOUT, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["measurements"] == 4
    (profile,) = answer["profiles"]
    spec = profile["spec"]
    assert spec["iteration"].keys() == {"2"}
    assert spec["tokensPerIteration"] == 2048
    assert "beside its iterations" in done.err
    (tmp_path / "all.json").write_text(json.dumps([*REST, profile]))
    checked = run("validate", "-f", str(tmp_path / "all.json"))
    assert checked.code == 0, checked.err + checked.out


def test_the_servers_own_page_states_its_memory_and_ranks(run: Run, files: list[str], tmp_path: Path) -> None:
    labels = 'block_size="16",enable_prefix_caching="False",num_gpu_blocks="701"'
    page = tmp_path / "metrics"
    page.write_text("".join(f'vllm:cache_config_info{{engine="{rank}",{labels}}} 1.0\n' for rank in range(2)))
    done = run("profile", "import", *files, *ABOUT, "--metrics", str(page), "--experts", "--json")
    assert done.code == 0, done.err
    (profile,) = json.loads(done.out)["profiles"]
    engine = {"cacheTokens": 11200, "blockTokens": 16, "prefixCaching": False, "dataRanks": 2, "expertParallel": True}
    assert profile["spec"]["engine"] == {"2": engine}
    (tmp_path / "all.json").write_text(json.dumps([*REST, profile]))
    checked = run("validate", "-f", str(tmp_path / "all.json"))
    assert checked.code == 0, checked.err + checked.out
    page.write_text("vllm:num_requests_running 1\n")
    refused = run("profile", "import", *files, *ABOUT, "--metrics", str(page))
    assert (refused.code, "has no vllm:cache_config_info" in refused.err) == (2, True)


def test_too_few_loads_and_wrong_files_are_refused(run: Run, files: list[str], tmp_path: Path) -> None:
    few = run("profile", "import", *files[:2], *ABOUT)
    assert (few.code, "2 loads are too few" in few.err) == (2, True)
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    refused = run("profile", "import", *files, str(wrong), *ABOUT)
    assert (refused.code, "it has no token times" in refused.err) == (2, True)
    elsewhere = run("profile", "llama/fp16", "--url", "http://127.0.0.1:1", "--parallel", "2")
    assert (elsewhere.code, "--parallel is for import; --url does not read it" in elsewhere.err) == (2, True)
