"""Turns token times that load tools measured into the Profile of a language model."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agents.prometheus.reading import read
from app.campaigns.reports import ReportRefused
from app.campaigns.reports.token_times import TokenReport, read_token_times
from app.manifests.drafts import ERROR_GOAL, find_q90_factor
from cli.exits import Failed
from cli.output import plain, say
from cli.profiling.asked import read_model, show
from cli.profiling.at_url import DEFAULT_VARIANT
from cli.profiling.imported import open_report
from cli.token_latency import camel

FEWEST_LOADS = 3  # fewer say nothing about a load that was not measured
DIGITS = 5
DEFAULT_SEQUENCES, DEFAULT_TOKENS = 256, 2048  # a server's own bounds, where they are not stated
UNSTATED_TOKENS = 10**9  # of memory: load tools do not report it
CACHE = "vllm:cache_config_info"


def import_token_times(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the Profile that the files make, one load a file, and returns it."""
    from solvers.llm.fit import fit, left_out_error
    from solvers.llm.iteration import BatchingLimits

    if not args.model or not args.gpu_type:
        raise Failed("an import needs --model MODEL[/VARIANT] and --gpu-type NAME: the files do not name them")
    if len(args.files) < FEWEST_LOADS:
        raise Failed(
            f"{len(args.files)} loads are too few: an iteration's time needs at least {FEWEST_LOADS} different ones"
        )
    began = time.monotonic()
    sequences = args.batches[-1] if args.batches else DEFAULT_SEQUENCES
    engine = _read_engine(args) if args.metrics else {}
    limits = BatchingLimits(
        sequences,
        args.tokens_per_iteration or DEFAULT_TOKENS,
        engine.get("cacheTokens", UNSTATED_TOKENS),
        _form(engine),
    )
    measured = [_make_measurement(report) for report in _read(args.files)]
    found = fit(measured, limits)
    missed = left_out_error(measured, limits, found.model)
    spread = find_q90_factor(missed) if missed is not None and missed > ERROR_GOAL else 1.0
    wanted = read_model(args.model)
    variant = wanted.variant or DEFAULT_VARIANT
    profile = {
        "apiVersion": "gpuwright/v1",
        "kind": "Profile",
        "metadata": {"name": f"{wanted.model}-{variant}-{args.gpu_type}".lower()},
        "spec": {
            "model": wanted.model,
            "variant": variant,
            "gpuType": args.gpu_type,
            "iteration": {str(args.parallel): _coefficients(found.model.cost, spread)},
            "tokensPerIteration": limits.tokens_per_iteration,
        }
        | ({} if missed is None else {"leftOutError": _round(missed)})
        | ({"engine": {str(args.parallel): engine}} if engine else {}),
    }
    show(args, [profile], len(measured), time.monotonic() - began, missed)
    later = "; tokens come an iteration late" if found.model.late_iterations else ""
    say(
        plain(
            f"each first token takes {found.model.request_ms:.3g} ms beside its iterations{later}: allow it in ttftMs"
        )
    )
    return [profile]


def _read(files: Sequence[str]) -> list[TokenReport]:
    try:
        return [read_token_times(open_report(name)) for name in files]
    except ReportRefused as refused:
        raise Failed(str(refused)) from refused


def _read_engine(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what vLLM's own page says of its memory, by data rank; raises Failed where it says nothing."""
    samples, _ = read(open_report(args.metrics).text.encode(), frozenset({CACHE}))
    ranks = [labels for labels, _ in samples.get(CACHE, ())]
    try:
        block = int(ranks[0]["block_size"])
        blocks = min(int(labels["num_gpu_blocks"]) for labels in ranks)
    except (IndexError, KeyError, ValueError):
        raise Failed(f"{args.metrics} has no {CACHE} with block_size and num_gpu_blocks") from None
    return {
        "cacheTokens": (blocks - 1) * block,  # it keeps a block for itself
        "blockTokens": block,
        "prefixCaching": ranks[0].get("enable_prefix_caching", "True") == "True",
        "dataRanks": len(ranks),
        "expertParallel": args.experts,
    }


def _form(engine: Mapping[str, Any]) -> Any:
    from solvers.llm.iteration import EngineForm

    if not engine:
        return EngineForm()
    ranks = engine["dataRanks"]
    return EngineForm(engine["blockTokens"], engine["prefixCaching"], ranks, ranks > 1 and engine["expertParallel"])


def _make_measurement(report: TokenReport) -> Any:
    from solvers.llm.sweeps.load import LoadTest, MeasuredLoad, TokenTimes

    load = LoadTest(
        report.input_tokens,
        report.output_tokens,
        rate_per_second=report.rate_per_second,
        concurrency=report.concurrency,
        seconds=report.seconds,
        poisson=report.rate_per_second > 0,
    )
    return MeasuredLoad(load, TokenTimes(report.ttft_ms, report.tpot_ms))


def _coefficients(cost: Any, spread: float) -> dict[str, Any]:
    """Returns the coefficients; those of a draft with the spread of its left-out errors."""
    found = {camel(name): _round(value) for name, value in asdict(cost).items()}
    if spread == 1.0:
        return found
    return {name: {"mean": value, "q90": _round(value * spread), "source": "measured"} for name, value in found.items()}


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
