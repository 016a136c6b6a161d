"""Judges SLOs by simulating each instance: its batch server, at length where there is doubt, or its iterations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import inf
from zlib import crc32

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import TokenVerdict, holds
from solvers.planning.judge.kernels import count_served
from solvers.planning.judge.plan_lines import where
from solvers.planning.judge.readings import Resident
from solvers.planning.judge.streams import BLOCKS, REQUESTS, SKIPPED, bursty_stream, stream
from solvers.planning.judge.verdict import Violation
from solvers.planning.judge.whole import is_sound, iterations, size_of
from solvers.planning.problem import Problem

SEEDS = 24  # streams of the first simulation: the place of an instance chooses one
AGAIN_REQUESTS = 1_000_000
AGAIN_SEED = 1_000
MOST_ERRORS = 4  # standard errors below the percentile that still count as chance


def find_attained(
    batch: int,
    exec_ms: float,
    timeout_ms: float,
    rate_per_second: float,
    slo_ms: float,
    percentile: float,
    seed: int,
    variation: float = 0.0,
) -> tuple[float, float, bool]:
    """Returns the share of requests within the SLO, its standard error, and if the SLO is kept.

    It simulates 60,000 requests. If the share is below the percentile by any amount, it simulates 1,000,000 with
    another seed; then up to 4 standard errors below the percentile still keep the SLO.
    """
    wanted = percentile / 100
    share, error = simulate_queue(batch, exec_ms, timeout_ms, rate_per_second, slo_ms, REQUESTS, seed, variation)
    if share >= wanted:
        return share, error, True
    again = (AGAIN_REQUESTS, AGAIN_SEED, variation)
    share, error = simulate_queue(batch, exec_ms, timeout_ms, rate_per_second, slo_ms, *again)
    return share, error, share >= wanted - MOST_ERRORS * error


@lru_cache(maxsize=100_000)  # instances that run alike are simulated once a stream
def simulate_queue(
    batch: int,
    exec_ms: float,
    timeout_ms: float,
    rate_per_second: float,
    slo_ms: float,
    requests: int,
    seed: int,
    variation: float = 0.0,
) -> tuple[float, float]:
    """Returns the share of so many requests within the SLO, and its standard error."""
    if variation > 0:
        units = bursty_stream(requests, seed, variation, rate_per_second, slo_ms / 1000)
    else:
        units = stream(requests, seed)
    share, error, _ = count_served(
        units, batch, exec_ms / 1000, timeout_ms / 1000, rate_per_second, slo_ms / 1000,
        requests * SKIPPED // REQUESTS, BLOCKS,
    )  # fmt: skip
    return share, error


def slos_hold(problem: Problem, lines: Iterable[Resident]) -> tuple[dict[str, float], list[Violation]]:
    """At least `percentile` % of an instance's requests finish within latencyMs of arrival, at exec x (1 + execMargin).

    Returns each service's worst instance, too. What cannot be simulated breaks other rules.
    """
    attainment: dict[str, float] = {}
    found: list[Violation] = []
    policy = problem.policy
    for line in lines:
        if is_sound(problem, line):
            share, sentence = _tokens_of(problem, line)
            name = line.instance.service
            attainment[name] = min(share, attainment.get(name, 1.0))
            found += [Violation(where(line.instance), "slo_holds", sentence)] if sentence else []
            continue
        instance, service = line.instance, line.service
        if service is None or line.exec_ms is None:
            continue
        if not instance.rate_per_second > 0 or not instance.batch_timeout_ms >= 0:
            continue
        exec_ms = line.exec_ms * (1 + policy.exec_margin)
        at = where(instance)
        if exec_ms < inf:
            share, error, kept = find_attained(
                instance.batch, exec_ms, instance.batch_timeout_ms, instance.rate_per_second,
                service.slo_ms, service.percentile, crc32(at.encode()) % SEEDS, service.variation,
            )  # fmt: skip
        else:
            share, error, kept = 0.0, 0.0, False
        attainment[service.name] = min(share, attainment.get(service.name, 1.0))
        if not kept:
            sentence = (
                f"{100 * share:.4g} % of requests finish within {service.slo_ms:g} ms (standard error"
                f" {100 * error:.2g}), {service.percentile:g} % are promised: batch {instance.batch},"
                f" exec {exec_ms:.6g} ms with the margin, {instance.rate_per_second:.6g} a second"
            )
            found.append(Violation(at, "slo_holds", sentence))
    return attainment, found


def _tokens_of(problem: Problem, line: Resident) -> tuple[float, str]:
    """Returns the share of requests that keep an SLO of tokens, and what is wrong."""

    return tokens_hold(problem, line, crc32(where(line.instance).encode()) % SEEDS)


def tokens_hold(problem: Problem, line: Resident, seed: int) -> tuple[float, str]:
    """At least `percentile` % of an instance's requests get their first token within ttftMs, and as many keep tpotMs,
    with iterations x (1 + execMargin); at most 0.1 % of requests give up their memory or do not fit into it.

    Returns the smaller share of the two, and what is wrong; empty if the promise holds.
    """
    service, instance = line.service, line.instance
    size = size_of(problem, line)
    assert service and service.tokens and line.profile and size
    cost, limits = iterations(
        line.profile, size, problem.type_of(instance.node), instance.degree, int(instance.batch),
        instance.memory_gib, instance.clock_mhz, problem.policy.exec_margin,
    )  # fmt: skip
    lengths = replace(service.tokens.lengths, context_tokens=size.context_tokens)
    found = _simulate(cost, limits, lengths, service.tokens.promise, instance.rate_per_second, seed)
    return min(found.ttft.share, found.tpot.share), "" if found.kept else _wrong(found, line, limits)


@lru_cache(maxsize=10_000)  # instances that run alike are simulated once a stream
def _simulate(
    cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise, rate: float, seed: int
) -> TokenVerdict:
    return holds(cost, limits, lengths, promise, rate, seed)


def _wrong(found: TokenVerdict, line: Resident, limits: BatchingLimits) -> str:
    assert line.service and line.service.tokens
    promise, rate = line.service.tokens.promise, line.instance.rate_per_second
    if not found.memory.kept(0.0):
        return (
            f"at {rate:.6g} a second {100 * (1 - found.memory.share):.4g} % of requests give up their memory, or do not"
            f" fit into the {limits.kv_tokens} tokens that it holds"
        )
    return (
        f"{100 * found.ttft.share:.4g} % of first tokens come within {promise.ttft_ms:g} ms and"
        f" {100 * found.tpot.share:.4g} % of requests take at most {promise.tpot_ms:g} ms a token (standard errors"
        f" {100 * found.ttft.error:.2g} and {100 * found.tpot.error:.2g}), {promise.percentile:g} % are promised:"
        f" batch {line.instance.batch}, {line.instance.degree} GPUs, {rate:.6g} a second"
    )
