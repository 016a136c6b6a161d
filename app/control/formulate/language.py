"""Reads what manifests state of language models into the solver's terms."""

from __future__ import annotations

from app.control.domain.specs import Spec
from solvers.planning.language import IterationCost, LlmSize, TokenLengths, TokenPromise, TokenService


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


def token_service(service: Spec) -> TokenService | None:
    """Returns what a service promises of tokens; None if it promises a latency."""
    slo, tokens = service["slo"], service.get("tokens")
    if tokens is None or "ttftMs" not in slo:
        return None
    lengths = TokenLengths(
        tokens["input"]["mean"], tokens["input"]["p95"], tokens["output"]["mean"], tokens["output"]["p95"],
        tokens.get("prefixShare", 0.0),
    )  # fmt: skip
    return TokenService(TokenPromise(slo["ttftMs"], slo["tpotMs"], slo["percentile"]), lengths)
