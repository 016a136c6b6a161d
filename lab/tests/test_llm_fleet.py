"""Plans for language models beside those of others: fits, sizing, simulation, and the whole comparison in small."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cli.main import main
from lab.llm_fleet.measured import COLUMNS, FILE, fit_all
from lab.llm_fleet.melange import SLICES, melange
from lab.llm_fleet.servers import WeightedRequests
from lab.llm_fleet.trace import COLUMNS as TRACE_COLUMNS
from lab.llm_fleet.trace import FILE as TRACE_FILE
from lab.llm_fleet.trace import read_trace
from solvers.llm.iteration import BatchingLimits, IterationCost, TokenPromise
from solvers.pools.servers import RatedServer

MODEL = "llama2-70b"
COSTS = {  # the truth of the data that the tests write
    (MODEL, "a100-80gb", 8): IterationCost(10.0, 0.1, 30.0, 0.2, 2e-4),
    (MODEL, "h100-80gb", 8): IterationCost(8.0, 0.05, 20.0, 0.15, 1e-4),
    (MODEL, "h100-80gb-pcap", 8): IterationCost(8.0, 0.07, 20.0, 0.15, 1e-4),
}
RUNS = [(prompt, 1, 128) for prompt in (128, 256, 512, 1024, 2048)]
RUNS += [(512, batch, 128) for batch in (2, 4, 8, 16, 32, 64)] + [(512, 1, 1024)]


def write_measured(data: Path, *, failing: bool = False) -> None:
    """Writes runs as splitwise publishes them, each time twice, in iterations of COSTS."""
    (data / FILE).parent.mkdir(parents=True, exist_ok=True)
    with (data / FILE).open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        for (model, gpu_type, degree), cost in COSTS.items():
            for prompt, batch, output in [*RUNS, *RUNS]:
                prompt_ms = cost.milliseconds(prompt * batch, 0.0, 0, 0.0)
                token_ms = cost.milliseconds(0, 0.0, batch, batch * (prompt + output / 2))
                if failing and batch == 64:
                    prompt_ms, token_ms = prompt_ms / 10, token_ms / 2
                writer.writerow([model, gpu_type, prompt, batch, output, prompt_ms, token_ms, degree])


def write_trace(data: Path) -> None:
    """Writes 400 requests of few lengths, three a second."""
    (data / TRACE_FILE).parent.mkdir(parents=True, exist_ok=True)
    began = datetime(2023, 11, 16, 18, 0, tzinfo=UTC)
    rng = np.random.default_rng(5)
    with (data / TRACE_FILE).open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(TRACE_COLUMNS)
        for number in range(400):
            time = began + timedelta(seconds=number / 3)
            writer.writerow([f"{time:%Y-%m-%d %H:%M:%S.%f}0", rng.integers(300, 900), rng.integers(70, 200)])


def server(kind: str, rate: float) -> RatedServer:
    return RatedServer(kind, 8, COSTS[MODEL, kind, 8], BatchingLimits(128, 2048, 400_000), rate, 1.0)


def test_a_fit_finds_the_coefficients_without_the_run_that_failed(tmp_path: Path) -> None:
    write_measured(tmp_path, failing=True)
    fits = fit_all(tmp_path)
    assert fits.keys() == COSTS.keys()
    for kind, cost in COSTS.items():
        fit = fits[kind]
        assert (fit.runs, fit.failed_runs) == (len(RUNS) - 1, 1)
        assert fit.cost.token_ms == pytest.approx(cost.token_ms, rel=1e-6)
        assert fit.cost.base_ms + fit.cost.weights_ms == pytest.approx(cost.base_ms + cost.weights_ms, rel=1e-6)
        assert fit.cost.kv_token_ms == pytest.approx(cost.kv_token_ms, rel=1e-6)
        assert max(fit.prompt_error, fit.token_error, fit.left_out_prompt_error) < 1e-6
        assert fit.left_out_token_error < 0.01  # one length alone does not tell sequences from the tokens they hold


@pytest.mark.slow
def test_melange_serves_every_slice_and_fills_no_server_beyond_its_throughput(tmp_path: Path) -> None:
    write_trace(tmp_path)
    trace = read_trace(tmp_path, 4096)
    planner = melange([server(kind, 1.0) for _, kind, _ in COSTS], trace, TokenPromise(2000, 100, 95), 4096)
    rate = 40.0
    groups = planner.groups(rate)
    assert groups
    drawn = [group.source for group in groups if isinstance(group.source, WeightedRequests)]
    weights = np.sum([source.weights for source in drawn], axis=0)
    assert weights == pytest.approx(np.ones(len(trace.inputs)))
    assert sum(group.rate_per_second for group in groups) == pytest.approx(rate)
    for group in groups:
        assert isinstance(group.source, WeightedRequests)
        own = group.source.weights
        assert own * SLICES == pytest.approx(np.rint(own * SLICES))
        throughputs = planner.throughputs[planner.buckets.bucket, planner.servers.index(group.server)]
        load = float((rate * own / len(trace.inputs) / throughputs).sum())
        assert group.count - 1 < load <= group.count + 1e-6


@pytest.mark.slow
def test_every_planner_is_compared_with_ours_on_the_same_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_measured(tmp_path)
    write_trace(tmp_path)
    command = ["bench", "llm", "--data", str(tmp_path), "--level", "middle", "--load", "4", "--requests", "3000"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["planner"]: row for row in found["rows"]}
    (single,) = (name for name in rows if name.startswith("only "))
    assert rows.keys() == {"ours", "melange", "melange blind", single, "apart", "ours or apart"}
    ours = rows["ours"]
    assert ours["violations"] == []
    assert ours["missed"] == []
    assert ours["cost"] == pytest.approx(ours["judgedCost"])
    assert ours["bound"] <= ours["cost"] * (1 + 1e-9)
    assert 0 <= ours["gap"] < 0.01
    assert rows["ours or apart"]["heldCost"] <= min(ours["heldCost"], rows["apart"]["heldCost"])
    for row in rows.values():
        assert row["heldCost"] > 0
        assert row["ratio"] == pytest.approx(row["heldCost"] / ours["heldCost"])
        assert all(0.5 <= factor <= 2.0 for factor in row["factors"].values())


def test_missing_data_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "llm", "--data", str(tmp_path)]) != 0
    assert "perf_model.csv is missing" in capsys.readouterr().err
    write_measured(tmp_path)
    (tmp_path / TRACE_FILE).parent.mkdir()
    (tmp_path / TRACE_FILE).write_text("TIMESTAMP,ContextTokens\n")
    assert main(["bench", "llm", "--data", str(tmp_path)]) != 0
    assert "has no column GeneratedTokens" in capsys.readouterr().err
