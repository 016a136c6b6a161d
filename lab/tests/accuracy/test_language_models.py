"""Accuracy on servers of language models: rows from data that is made here, with known coefficients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lab.accuracy.llm import inferno, logs, predictor, silicon
from lab.data.missing_data import DataMissing
from lab.language.fit_requests import UNBOUNDED_TOKENS, RequestLog, replay_log
from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost

COST = IterationCost(3.0, 0.05, 8.0, 0.03, 6e-5, 2e-6, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [{}, {"num_gpu_blocks": 700, "block_size": 16, "enable_prefix_caching": True}])
def test_a_log_of_a_known_server_is_predicted(memory: dict[str, object], tmp_path: Path) -> None:
    folder = tmp_path / logs.FOLDER / "made"
    folder.mkdir(parents=True)
    kwargs = {"max_num_seqs": 64, "max_num_batched_tokens": 1024}
    meta = {"vllm_version": "0.19.0", "engine_kwargs": kwargs, "kv_cache": memory}
    (folder / "meta.json").write_text(json.dumps(meta))
    limits = logs.read_limits(meta)
    generator = np.random.default_rng(1)
    arrivals = np.cumsum(generator.exponential(60.0, 300))
    inputs, outputs = generator.integers(50, 1500, 300), generator.integers(50, 300, 300)
    empty = np.zeros(300)
    served = replay_log(RequestLog(arrivals, inputs, outputs, empty, empty), limits, COST)
    first, last = served.first_ms, served.last_ms
    lines = [
        {
            "arrival_time": 1000 + came / 1e3, "queued_ts": came / 1e3, "first_token_ts": began / 1e3,
            "last_token_ts": ended / 1e3, "input_toks": int(tokens), "output_toks": int(answer),
        }
        for came, began, ended, tokens, answer in zip(arrivals, first, last, inputs, outputs, strict=True)
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    rows = {row.what: row for row in logs.rows(tmp_path)}
    assert list(rows) == ["logs.kv"] * bool(memory) + ["logs.ttft", "logs.tpot", "logs.p95"]
    assert not memory or rows["logs.kv"].ours < 3
    assert rows["logs.ttft"].ours < 5
    assert rows["logs.tpot"].ours < 2
    assert rows["logs.p95"].ours < 2
    assert rows["logs.tpot"].ours < rows["logs.tpot"].baselines[logs.PLAIN]


def test_the_description_of_a_server_states_its_memory_and_its_ranks() -> None:
    kwargs = {"max_num_seqs": 64, "max_num_batched_tokens": 1024, "data_parallel_size": 2}
    kwargs["enable_expert_parallel"] = True
    memory = {"num_gpu_blocks": 700, "block_size": 32, "enable_prefix_caching": False}
    limits = logs.read_limits({"vllm_version": "0.19.0", "engine_kwargs": kwargs, "kv_cache": memory})
    form = EngineForm(32, False, data_ranks=2, experts=True, schedules_ahead=True)
    assert limits == BatchingLimits(64, 1024, 699 * 32, form)
    older = logs.read_limits({"vllm_version": "0.9.2", "engine_kwargs": {**kwargs, "data_parallel_size": 1}})
    assert (older.kv_tokens, older.form) == (UNBOUNDED_TOKENS, EngineForm())


@pytest.mark.slow
def test_the_quantile_beats_gradient_boosting_while_a_load_grows(tmp_path: Path) -> None:
    (tmp_path / predictor.FOLDER).mkdir()
    generator = np.random.default_rng(1)
    lines = []
    for place in range(240):
        waiting = int(place / 10 * generator.uniform(0.5, 1.5))
        tokens = int(generator.integers(100, 3000))
        ttft_ms = (50 + 0.05 * (1500 * waiting + tokens)) * np.exp(0.2 * generator.normal())
        lines.append(
            {
                "kv_cache_percentage": min(0.9, waiting / 60), "num_request_waiting": waiting,
                "num_request_running": 20, "prefill_tokens_in_flight": 1500 * waiting, "input_token_length": tokens,
                "prefix_cache_score": 0.0, "actual_ttft_ms": ttft_ms * (place % 2),
                "actual_tpot_ms": (place + 1) % 2 * (20 + waiting / 10),
            }
        )  # fmt: skip
    (tmp_path / predictor.FOLDER / "made.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    pinball, coverage = predictor.rows(tmp_path)
    assert pinball.ours < pinball.baselines[predictor.BOOSTING]
    assert 80 < coverage.ours < 99
    assert pinball.n == coverage.n == 140


@pytest.mark.parametrize("topic", [inferno, logs, predictor, silicon])
def test_a_folder_without_the_data_is_named(topic: object, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=str(tmp_path)):
        topic.rows(tmp_path)  # type: ignore[attr-defined]
