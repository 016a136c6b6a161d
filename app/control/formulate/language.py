"""Reads what manifests state of language models into the solver's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.control.domain.snapshot import DeclaredObject, ExpectedLoad
from app.control.domain.specs import Spec
from solvers.llm.iteration import MOST_P95
from solvers.planning.language import (
    AdapterPlaces,
    EngineForm,
    IterationCost,
    LlmSize,
    LoraAdapter,
    ServerMemory,
    TokenLengths,
    TokenPromise,
    TokenService,
)


def llm_size(variant: Spec) -> LlmSize | None:
    """Returns the memory of a variant and the degrees it may have; None if it is no language model."""
    llm = variant.get("llm")
    if not llm:
        return None
    degrees = tuple(sorted(llm.get("parallel", (1,))))
    return LlmSize(float(llm["weightsGib"]), float(llm["kvBytesPerToken"]), llm["contextTokens"], degrees)


def iteration_costs(profile: Spec) -> dict[int, IterationCost]:
    """Returns by parallel degree the time of an iteration; the profile has numbers only."""
    return {
        int(degree): IterationCost(
            base_ms=cost["baseMs"],
            token_ms=cost["tokenMs"],
            weights_ms=cost.get("weightsMs", 0.0),
            sequence_ms=cost.get("sequenceMs", 0.0),
            kv_token_ms=cost.get("kvTokenMs", 0.0),
            prompt_pair_ms=cost.get("promptPairMs", 0.0),
            mixed_ms=cost.get("mixedMs", 0.0),
        )
        for degree, cost in profile.get("iteration", {}).items()
    }


def engines(profile: Spec) -> dict[int, ServerMemory]:
    """Returns by parallel degree what servers said of their memory and ranks."""
    return {
        int(degree): ServerMemory(
            engine["cacheTokens"],
            EngineForm(
                engine.get("blockTokens", 16),
                engine.get("prefixCaching", True),
                engine.get("dataRanks", 1),
                engine.get("dataRanks", 1) > 1 and engine.get("expertParallel", False),
                engine.get("schedulesAhead", False),
            ),
        )
        for degree, engine in profile.get("engine", {}).items()
    }


def adapter_places(profile: Spec) -> AdapterPlaces | None:
    """Returns the places for adapters that a profile states."""
    held = profile.get("adapters")
    return AdapterPlaces(held["places"], held["maxRank"], held["placeGib"], held.get("slowdown", 0.0)) if held else None


def read_token_service(service: Spec) -> TokenService | None:
    """Returns what a service promises of tokens; None if it promises a latency."""
    slo, tokens = service["slo"], service.get("tokens")
    if tokens is None or "ttftMs" not in slo:
        return None
    lengths = TokenLengths(
        tokens["input"]["mean"], tokens["input"]["p95"], tokens["output"]["mean"], tokens["output"]["p95"],
        tokens.get("prefixShare", 0.0),
    )  # fmt: skip
    adapters = [LoraAdapter(each["name"], each["path"], each["rank"]) for each in service.get("adapters", ())]
    return TokenService(TokenPromise(slo["ttftMs"], slo["tpotMs"], slo["percentile"]), lengths, tuple(adapters))


def read_declared_lengths(declared: Sequence[DeclaredObject]) -> dict[str, TokenLengths]:
    """Returns by service the lengths that the manifests of language models' services state."""
    services = ((item.full_name, read_token_service(item.spec)) for item in declared if item.kind == "Service")
    return {name: found.lengths for name, found in services if found}


def set_believed_lengths(tokens: TokenService, load: ExpectedLoad) -> TokenService:
    """Returns the service's tokens with the means that were measured; the 95th percentiles keep their ratio to them."""
    declared = tokens.lengths
    input_mean, output_mean = load.input_mean or declared.input_mean, load.output_mean or declared.output_mean
    if (input_mean, output_mean) == (declared.input_mean, declared.output_mean):
        return tokens
    lengths = replace(
        declared,
        input_mean=input_mean,
        input_p95=_p95(input_mean, *declared.input),
        output_mean=output_mean,
        output_p95=_p95(output_mean, *declared.output),
    )
    return replace(tokens, lengths=lengths)


def _p95(mean: float, declared_mean: float, declared_p95: float) -> float:
    return max(mean, min(mean * (declared_p95 / declared_mean), MOST_P95 * mean))
