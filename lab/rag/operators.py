"""Composes the time of an iteration of Llama-3.1-8B on one GPU from operators that aiconfigurator measured one by one.

A layer is four products and attention; after the last layer comes the product with the vocabulary. What the engine
itself does between two iterations is not measured there, and not counted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.accuracy.llm.composed import MODELS, Product, measured_product
from lab.data.missing_data import DataMissing
from lab.llm_fleet.measured import MeasuredIteration, fit_iterations
from solvers.llm.iteration import IterationCost

FOLDER = Path("aiconfigurator") / "ops"
MODEL = MODELS["meta-llama/Llama-3.1-8B-Instruct"]
WEIGHT_BYTES = 2  # half precision
PROMPT_TOKENS = (128, 256, 512, 1024, 2048)
SEQUENCES = (1, 8, 32, 64, 128)
HELD_TOKENS = (1023, 2047, 4095)  # of each sequence
VOCABULARY_TOKENS = 64  # a prompt needs the vocabulary for its last token only
COLUMNS = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "attn_dtype",
           "kv_cache_dtype", "latency")  # fmt: skip


def fit_operators(data: Path, system: str) -> tuple[IterationCost, float]:
    """Returns the coefficients of an iteration on a GPU, and the mean error of the fit as a share."""
    product = measured_product(_file(data, system, "gemm", "gemm_perf"))
    prompts = _attention(_file(data, system, "attention", "context_attention_perf"), "isl")
    answers = _attention(_file(data, system, "attention", "generation_attention_perf"), "step")
    asked = [tokens for tokens in PROMPT_TOKENS if (1, tokens) in prompts]
    held = [(batch, each) for batch in SEQUENCES for each in HELD_TOKENS if (batch, each) in answers]
    if not asked or not held:
        raise DataMissing(f"{data / FOLDER / system} has no attention of Llama-3.1-8B in bfloat16")
    # Attention of prompts grows with pairs; products alone show what a token costs.
    most = asked[-1]
    pair_ms = MODEL.layers * prompts[1, most] / _pairs(most)
    rows = [MeasuredIteration(1, tokens, 0, 0.0, _milliseconds(product, tokens, 0.0)) for tokens in asked]
    rows += [
        MeasuredIteration(batch, 0, batch, float(batch * each), _milliseconds(product, batch, answers[batch, each]))
        for batch, each in held
    ]
    cost = replace(fit_iterations(rows), prompt_pair_ms=pair_ms)
    errors = []
    for row in rows:
        attention_ms = prompts[1, row.prompt_tokens] if row.prompt_tokens else 0.0
        ms = cost.milliseconds(row.prompt_tokens, _pairs(row.prompt_tokens), row.sequences, row.kv_tokens)
        errors.append(abs(ms / (row.ms + MODEL.layers * attention_ms) - 1))
    return cost, sum(errors) / len(errors)


def _pairs(tokens: int) -> float:
    return tokens * (tokens - 1) / 2


def _milliseconds(product: Product, tokens: int, attention_ms: float) -> float:
    layer_s = sum(product(tokens, columns, rows, WEIGHT_BYTES) for columns, rows in MODEL.products(1))
    head_s = product(min(tokens, VOCABULARY_TOKENS), MODEL.vocabulary, MODEL.hidden, WEIGHT_BYTES)
    return MODEL.layers * (1e3 * layer_s + attention_ms) + 1e3 * head_s


def _attention(file: Path, length: str) -> dict[tuple[int, int], float]:
    """Returns the ms of attention in one layer by batch and length; the least of repeats and kernels."""
    import pyarrow.parquet as parquet

    found: dict[tuple[int, int], float] = {}
    wanted = MODEL.heads, MODEL.kv_heads, MODEL.head_size, "bfloat16", "bfloat16"
    table = parquet.read_table(file)
    windows = table.column("window_size").to_pylist() if "window_size" in table.column_names else [0] * len(table)
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    for batch, prompt, step, *sizes, ms, window in zip(*columns, windows, strict=True):
        if tuple(sizes) == wanted and not window:
            key = batch, prompt if length == "isl" else step
            found[key] = min(ms, found.get(key, ms))
    return found


def _file(data: Path, system: str, kind: str, name: str) -> Path:
    folder = data / FOLDER / system / kind / "vllm"
    files = sorted(folder.glob(f"*/{name}.parquet"))
    if not files:
        raise DataMissing(f"{folder} has no {name}.parquet; --data names a folder with it")
    return files[-1]
