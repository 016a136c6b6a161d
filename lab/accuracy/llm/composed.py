"""TPOT and TTFT composed without any run of the server: from measured operators, or from a data sheet.

Dense models only, as the experts that a token chooses are not known. A layer is four products, attention, and two sums
over GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lab.accuracy.accuracy_row import AccuracyRow
from lab.language.closed_loop import ClosedLoopRun

FOLDER = Path("aiconfigurator")
OPERATORS = FOLDER / "ops" / "h100_sxm" / "gemm" / "vllm"


@dataclass(frozen=True)
class DenseModel:
    """The sizes of a dense transformer, as its publisher states them."""

    layers: int
    hidden: int
    inner: int  # of the feed-forward part
    heads: int
    kv_heads: int
    vocabulary: int
    head_size: int = 128

    def products(self, degree: int) -> tuple[tuple[int, int], ...]:
        """Returns columns and rows of a layer's products on one of so many GPUs."""
        width = (self.heads + 2 * self.kv_heads) * self.head_size
        attended = self.heads * self.head_size
        return (
            (width // degree, self.hidden), (self.hidden, attended // degree),
            (2 * self.inner // degree, self.hidden), (self.hidden, self.inner // degree),
        )  # fmt: skip


MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": DenseModel(32, 4096, 14336, 32, 8, 128256),
    "meta-llama/Llama-3.1-70B": DenseModel(80, 8192, 28672, 64, 8, 128256),
    "Qwen/Qwen3-32B": DenseModel(64, 5120, 25600, 64, 8, 151936),
}
Product = Callable[[int, int, int, int], float]  # tokens, columns, rows, bytes of a weight -> seconds


def composed_rows(data: Path, measured: Mapping[ClosedLoopRun, tuple[float, float]]) -> list[AccuracyRow]:
    """Returns the errors of both compositions; a row says when the operators cannot be read."""
    runs = [run for run in measured if run.model in MODELS]
    sheets = {
        name: yaml.safe_load((data / FOLDER / "systems" / f"{name}.yaml").read_text())
        for name in {run.gpu_type for run in runs}
    }
    by_sheet = {name: _sheet_product(sheet["gpu"]) for name, sheet in sheets.items()}
    found = _rows("silicon.composed.sheet", measured, runs, sheets, by_sheet, "products by the data sheet")
    folder = data / OPERATORS
    files = sorted(folder.glob("*/gemm_perf.parquet"))
    if not files:
        return [
            *found,
            AccuracyRow("silicon.composed.operators", str(OPERATORS), 0, float("nan"), note="the operators are absent"),
        ]
    product = measured_product(files[0])
    ours = [run for run in runs if run.gpu_type == "h100_sxm"]
    note = "products as measured one by one on H100; the rest by the data sheet"
    return [*found, *_rows("silicon.composed.operators", measured, ours, sheets, {"h100_sxm": product}, note)]


def _rows(
    what: str, measured: Mapping[ClosedLoopRun, tuple[float, float]], runs: list[ClosedLoopRun],
    sheets: Mapping[str, Any], products: Mapping[str, Product], note: str,
) -> list[AccuracyRow]:  # fmt: skip
    composed = np.array([_compose(run, sheets[run.gpu_type], products[run.gpu_type]) for run in runs])
    errors = 100 * np.abs(composed / np.array([measured[run] for run in runs]) - 1)
    words = f"no run is used; dense models; {note}"
    ttft, tpot = errors.T
    return [
        AccuracyRow(
            f"{what}.ttft", str(FOLDER), len(runs), round(float(np.median(ttft)), 3),
            note=f"median; {words}; mean {ttft.mean():.1f} %",
        ),
        AccuracyRow(
            f"{what}.tpot", str(FOLDER), len(runs), round(float(tpot.mean()), 3),
            note=f"mean; {words}; median {np.median(tpot):.1f} %",
        ),
    ]  # fmt: skip


def _compose(run: ClosedLoopRun, sheet: Mapping[str, Any], product: Product) -> tuple[float, float]:
    """Returns TTFT and TPOT in ms at the run's concurrency: prompts delay the iterations of the others."""
    model, gpu = MODELS[run.model], sheet["gpu"]
    weight = 1 if "fp8" in run.configuration else 2
    prompt_s = _pass(model, run.degree, run.input_tokens, weight, gpu, sheet["node"], product)
    # every prompt token attends to half of the prompt on average
    pairs = 2.0 * model.layers * model.heads * model.head_size * run.input_tokens**2 / run.degree
    prompt_s += pairs / gpu["bfloat16_tc_flops"]
    held = run.concurrency * (run.input_tokens + run.output_tokens / 2)
    kv_bytes = 2 * 2 * model.layers * max(1, model.kv_heads // run.degree) * model.head_size
    reading_s = held * kv_bytes / (gpu["mem_bw"] * gpu["mem_bw_empirical_scaling_factor"])
    decode_s = _pass(model, run.degree, run.concurrency, weight, gpu, sheet["node"], product) + reading_s
    # while a request gets its tokens, as many prompts come as requests run: each once
    tpot_s = decode_s + run.concurrency * prompt_s / max(1, run.output_tokens)
    return 1e3 * (prompt_s + decode_s), 1e3 * tpot_s


def _pass(
    model: DenseModel, degree: int, tokens: int, weight: int, gpu: Mapping[str, float], node: Mapping[str, float],
    product: Product,
) -> float:  # fmt: skip
    layer = sum(product(tokens, columns, rows, weight) for columns, rows in model.products(degree))
    if degree > 1:
        sent = 2 * tokens * model.hidden * 2 * (degree - 1) / degree
        layer += 2 * (sent / node["intra_node_bw"] + node["p2p_latency"])
    head = product(min(tokens, 64), model.vocabulary // degree, model.hidden, 2)
    return model.layers * layer + head + gpu["mem_empirical_constant_latency"]


def _sheet_product(gpu: Mapping[str, float]) -> Product:
    def seconds(tokens: int, columns: int, rows: int, weight: int) -> float:
        flops = gpu["fp8_tc_flops"] if weight == 1 else gpu["bfloat16_tc_flops"]
        moved = weight * columns * rows + 2 * tokens * (columns + rows)
        read = moved / (gpu["mem_bw"] * gpu["mem_bw_empirical_scaling_factor"])
        return max(2.0 * tokens * columns * rows / flops, read) + gpu["mem_empirical_constant_latency"]

    return seconds


def measured_product(file: Path) -> Product:
    """Returns products by the nearest measured matrix, scaled by its size, between measured numbers of tokens."""
    import pyarrow.parquet as parquet

    best: dict[tuple[str, int, int], dict[int, float]] = {}
    table = parquet.read_table(file, columns=["gemm_dtype", "m", "n", "k", "latency"]).to_pydict()
    for kind, m, n, k, ms in zip(*table.values(), strict=True):
        times = best.setdefault((kind, n, k), {})
        times[m] = min(ms, times.get(m, ms))
    shapes = {kind: np.array([key[1:] for key in best if key[0] == kind]) for kind in ("bfloat16", "fp8")}

    def seconds(tokens: int, columns: int, rows: int, weight: int) -> float:
        kind = "fp8" if weight == 1 else "bfloat16"
        away = np.abs(np.log(shapes[kind] / np.array([columns, rows]))).sum(axis=1)
        n, k = (int(size) for size in shapes[kind][away.argmin()])
        times = best[kind, n, k]
        known = sorted(times)
        ms = np.exp(np.interp(np.log(tokens), np.log(known), np.log([times[m] for m in known])))
        return 1e-3 * float(ms) * columns * rows / (n * k)

    return seconds
