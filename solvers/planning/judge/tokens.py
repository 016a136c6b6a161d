"""Judges SLOs of tokens by simulating each instance of a language model, iteration by iteration."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import TokenVerdict, holds
from solvers.planning.judge.readings import Resident
from solvers.planning.judge.whole import iterations, size_of
from solvers.planning.problem import Problem


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
