"""A service of retrieved passages: reading and repeating a recording, coefficients, plans, and the whole in small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from app.control.formulate.problem import build_problem
from cli.main import main
from lab.accuracy.llm.composed import MODELS as DENSE_MODELS
from lab.data.missing_data import DataMissing
from lab.rag import catalogue, fleets, operators, trace
from lab.tests.test_llm_fleet import write_measured
from simulation.world import read_documents
from solvers.llm.iteration import IterationCost, TokenLengths, TokenPromise
from solvers.planning.problem import Problem

LENGTHS = TokenLengths(1000.0, 2000.0, 100.0, 200.0)
COSTS: dict[str, catalogue.Costs] = {
    "8b": {"a100-80gb": {1: IterationCost(6.0, 0.05, 5.0)}, "h100-80gb": {1: IterationCost(3.0, 0.015, 3.0)}},
    "70b": {"h100-80gb": {4: IterationCost(15.0, 0.06, 10.0), 8: IterationCost(15.0, 0.04, 5.0)}},
}


def write_recording(data: Path, hours: int = 1, an_hour: int = 60) -> None:
    """Writes requests at even gaps, which begin with one of two system prompts."""
    (data / trace.FILE).parent.mkdir(parents=True)
    lines = [
        {
            "timestamp": str(number * 3600 // an_hour), "input_length": 200 + number % 7, "output_length": 20,
            "hash_ids": {"sys_prompt": [number % 2], "passages_ids": [], "user_input": [100 + number]},
        }
        for number in range(hours * an_hour)
    ]  # fmt: skip
    (data / trace.FILE).write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def problem(costs: Mapping[str, catalogue.Costs], rate: float = 1.0, nodes: int = 2) -> Problem:
    return build_problem(read_documents(catalogue.documents(costs, LENGTHS, rate, nodes)))


def test_each_request_is_repeated_near_its_time_and_the_same_seed_repeats_it_alike(tmp_path: Path) -> None:
    write_recording(tmp_path, hours=3)
    recorded = trace.read_trace(tmp_path, 8192).requests
    again, other = (recorded.repeated(50, [seed, 8]) for seed in (1, 2))
    assert np.array_equal(again.times, recorded.repeated(50, [1, 8]).times)
    assert not np.array_equal(again.times, other.times)
    assert (np.diff(again.times) >= 0).all()
    assert again.times[0] >= 0
    assert again.times[-1] <= 3 * 3600
    assert np.array_equal(np.bincount(again.inputs), 50 * np.bincount(recorded.inputs))
    hour = again.slice_seconds(3600, 7200)
    assert len(hour.times) / 3600 == pytest.approx(50 / 60, rel=0.05)
    gaps = np.diff(hour.times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)  # of Poisson arrivals


def test_a_load_that_comes_in_one_hour_stays_near_it() -> None:
    times = np.linspace(36_000.0, 39_600.0, 100)
    ones = np.ones(100, dtype=np.int64)
    repeated = trace.RagRequests(times, ones, ones).repeated(20, [0])
    assert repeated.times.min() >= 36_000 - trace.NEAR_SECONDS
    assert len(repeated.times) == 2000


def test_the_known_part_of_a_prompt_is_what_earlier_ones_began_with(tmp_path: Path) -> None:
    write_recording(tmp_path)
    assert trace.read_trace(tmp_path, 8192).known_share == pytest.approx(58 / 60 / 2)  # all but the first of each


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 of .* is no JSON"),
        ('{"timestamp": "1"}', "line 2 of .* has no input_length"),
        ("", "has 1 requests"),
    ],
)
def test_a_recording_that_cannot_be_read_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / trace.FILE).parent.mkdir()
    good = '{"timestamp": "0", "input_length": 9, "output_length": 9, "hash_ids": {}}'
    (tmp_path / trace.FILE).write_text(f"{good}\n{line}\n")
    with pytest.raises(DataMissing, match=message):
        trace.read_trace(tmp_path, 8192)


@pytest.mark.slow
def test_operators_give_the_coefficients_that_they_were_written_with(tmp_path: Path) -> None:
    """A token costs 2 us in each product, which reads its weights for 0.3 ms; attention is 1 ns a pair or token."""
    write_operators(tmp_path, "h100_sxm")
    cost, error = operators.fit_operators(tmp_path, "h100_sxm")
    layers = DENSE_MODELS["meta-llama/Llama-3.1-8B-Instruct"].layers
    assert cost.token_ms == pytest.approx(4 * layers * 0.002, rel=0.02)
    assert cost.base_ms + cost.weights_ms == pytest.approx(4 * layers * 0.3, rel=0.05)
    assert cost.kv_token_ms == pytest.approx(layers * 1e-6, rel=0.05)
    assert cost.prompt_pair_ms == pytest.approx(layers * 1e-6, rel=0.01)
    assert error < 0.02


def write_operators(data: Path, system: str) -> None:
    """Writes products of just the model's matrices, and attention by prompts' lengths and by sequences held."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    def write(kind: str, name: str, rows: list[dict[str, object]]) -> None:
        file = data / operators.FOLDER / system / kind / "vllm" / "0.1" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(arrow.Table.from_pylist(rows), file)

    model = operators.MODEL
    sizes = [*model.products(1), (model.vocabulary, model.hidden)]
    tokens = (1, 8, 32, 64, 128, 149, 150, 151, 256, 512, 1024, 2048)
    gemm: list[dict[str, object]] = [
        {"gemm_dtype": kind, "m": m, "n": n, "k": k,
         "latency": 1e-9 if n == model.vocabulary else max(0.3, 0.002 * m)}
        for kind in ("bfloat16", "fp8") for m in tokens for n, k in sizes
    ]  # fmt: skip
    write("gemm", "gemm_perf", gemm)
    shape: dict[str, object] = {
        "num_heads": model.heads, "num_key_value_heads": model.kv_heads, "head_dim": model.head_size,
        "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16",
    }  # fmt: skip
    prompts: list[dict[str, object]] = [
        shape | {"batch_size": 1, "isl": length, "step": 0, "latency": 1e-6 * length * (length - 1) / 2}
        for length in operators.PROMPT_TOKENS
    ]
    write("attention", "context_attention_perf", prompts)
    held: list[dict[str, object]] = [
        shape | {"batch_size": batch, "isl": 1, "step": each, "latency": 1e-6 * batch * each}
        for batch in operators.SEQUENCES for each in operators.HELD_TOKENS
    ]  # fmt: skip
    write("attention", "generation_attention_perf", held)


@pytest.mark.slow
def test_static_plans_cost_more_one_after_the_other_and_carry_the_rate() -> None:
    known = problem({"70b": {"h100-80gb": {4: IterationCost(15.0, 0.06, 10.0)}}}, nodes=4)
    (service,) = known.services.values()
    found = list(fleets.static_plans(known, service, 20.0))
    costs = [plan.certificate.cost.resource for _, plan in found if plan.certificate]
    assert len(costs) == len(found) > 2
    assert costs == sorted(set(costs))
    for factor, plan in found:
        assert sum(line.rate_per_second for line in plan.instances) == pytest.approx(20.0 * factor)


def test_a_planner_by_throughput_gives_each_rate_enough_servers_and_moves_none_of_them() -> None:
    known = problem(COSTS, nodes=2)
    ones = np.ones(50, dtype=np.int64)
    requests = trace.RagRequests(np.arange(50.0), 1000 * ones, 100 * ones)
    planner = fleets.ThroughputPlanner.choose(known, dict.fromkeys(known.services, requests))
    each = {name: rate for name, (_, rate) in planner.chosen.items()}
    few, many = (planner.plan({name: times * rate for name, rate in each.items()}) for times in (0.9, 2.5))
    assert len(few.instances) == 2
    assert len(many.instances) == 6
    assert set(few.instances) <= set(many.instances)
    places = [place for line in many.instances for place in line.places]
    assert len(places) == len(set(places))


def test_no_number_of_gpus_serves_a_request_whose_prompt_alone_takes_too_long() -> None:
    """Five prompts of 100 tokens take 100 ms, and one of 2,000 takes 2,000 ms."""
    known = problem({"8b": {"h100-80gb": {1: IterationCost(0.0, 1.0)}}})
    (service,) = known.services.values()
    inputs = np.array([100, 100, 100, 100, 100, 2000])
    requests = trace.RagRequests(np.arange(6.0), inputs, np.full(6, 2))
    shapes = fleets.shapes(known, service)
    found = fleets.unlimited(shapes, requests, TokenPromise(1000.0, 50.0, 99.0))
    assert (found.ttft, found.tpot, found.both) == (5 / 6, 1.0, 5 / 6)
    assert fleets.throughput(shapes[0], trace.RagRequests(np.arange(2.0), np.array([99, 99]), np.array([1, 1]))) == (
        pytest.approx(1000 / 99, rel=0.01)
    )


@pytest.mark.slow
def test_all_ways_to_plan_are_compared_on_the_same_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_measured(tmp_path)
    write_recording(tmp_path)
    command = ["bench", "rag", "--data", str(tmp_path), "--model", "70b", "--hours", "0.15", "--repeat", "30"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["planner"]: row for row in found["rows"] if row["service"] == "rag/answers"}
    assert rows.keys() == {"online", "static", "static promised", "last value", "unlimited"}
    assert rows["static"]["both"] >= rows["online"]["both"]
    assert rows["static"]["ratioToStatic"] == 1.0
    for row in rows.values():
        assert 0 <= row["both"] <= min(row["ttft"], row["tpot"]) <= rows["unlimited"]["ttft"] <= 1
    whole = {row["planner"]: row for row in found["rows"] if row["service"] == "all"}
    assert whole["online"]["costPerHour"] == rows["online"]["costPerHour"] > 0


def test_missing_data_and_hours_beyond_the_recording_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "rag", "--data", str(tmp_path)]
    assert main(command) != 0
    assert "days1-4.jsonl is missing" in capsys.readouterr().err
    write_recording(tmp_path)
    assert main([*command, "--model", "70b"]) != 0
    assert "perf_model.csv is missing" in capsys.readouterr().err
    assert main([*command, "--model", "8b"]) != 0
    assert "gemm_perf.parquet" in capsys.readouterr().err
    write_measured(tmp_path)
    assert main([*command, "--model", "70b", "--from-hour", "1"]) != 0
    assert "the recording has 1" in capsys.readouterr().err
