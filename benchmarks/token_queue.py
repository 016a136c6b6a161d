"""Measures how many requests a second the simulation of a language model's server serves on one core."""

from __future__ import annotations

from time import process_time
from typing import Any

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths
from solvers.llm.served import ServedStream, serve_stream
from solvers.llm.streams import stream

# Lengths of the conversations in Azure's published trace of 2023; coefficients of the size of an 8B model on one GPU.
LENGTHS = TokenLengths(input_mean=1155, input_p95=4083, output_mean=211, output_p95=451)
COST = IterationCost(5.0, 0.02, weights_ms=8.0, sequence_ms=0.02, kv_token_ms=2e-5, prompt_pair_ms=1e-7)
LIMITS = BatchingLimits(sequences=128, tokens_per_iteration=2048, kv_tokens=1_000_000)
LOAD_SHARE = 0.7  # of what the server can carry
REQUESTS = 200_000
OVERLOAD_PER_SECOND = 1000.0


def measure(runs: int) -> dict[str, Any]:
    """Returns the requests served a second of processor time, a value a run, and what the server did."""
    full = _serve(OVERLOAD_PER_SECOND, seed=0)  # loads or compiles the loop
    rate = LOAD_SHARE * REQUESTS / (full.end_ms / 1000.0)
    speeds = []
    for seed in range(1, runs + 1):
        stream(LENGTHS, REQUESTS, seed)  # drawn before the clock starts
        began = process_time()
        run = _serve(rate, seed)
        speeds.append(round(REQUESTS / (process_time() - began)))
    return {"requests_per_second": speeds, "load": LOAD_SHARE, "mean_sequences": round(run.mean_sequences, 1)}


def _serve(rate_per_second: float, seed: int) -> ServedStream:
    run = serve_stream(COST, LIMITS, stream(LENGTHS, REQUESTS, seed), rate_per_second)
    assert run is not None  # nothing stops it early
    return run
