"""Specs of language models: what a variant holds, how long an iteration takes, and how long requests are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from app.manifests.model import JSON
from app.manifests.quantities import LARGEST, Count, Positive, distinct, rule_fault
from app.manifests.spec import Contradiction, Spec, number
from app.manifests.uncertain import NotNegativeValue

DEGREES = (1, 2, 4, 8)  # how many GPUs one instance may take
TOKENS_PER_ITERATION = 2048
MOST_SPREAD = 3.8  # p95 over mean of lengths: no log-normal distribution has more than 3.87


def _degree(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value in DEGREES:
        return value
    raise rule_fault("this is not a parallel degree", _spell(DEGREES))


def _degree_key(key: object) -> object:
    found = _DEGREE_KEYS.get(key) if isinstance(key, str) else None
    if found is None:
        raise rule_fault("this is not a parallel degree", _spell(DEGREES))
    return found


def _spell(degrees: tuple[int, ...]) -> str:
    return ", ".join(map(str, degrees))


_DEGREE_KEYS = {str(degree): degree for degree in DEGREES}
Degree: TypeAlias = Annotated[int, BeforeValidator(_degree)]
DegreeKey: TypeAlias = Annotated[int, BeforeValidator(_degree_key)]


class LlmSpec(Spec):
    """The GPU memory that a variant of a language model holds, and the numbers of GPUs over which it can be spread."""

    weights_gib: Positive = Field(description="Memory of all weights together")
    layers: Count = Field(description="Layers")
    kv_bytes_per_token: Positive = Field(description="Memory of the keys and values of one token, in all layers")
    context_tokens: Count = Field(description="Most tokens of a request: of its input and output together")
    parallel: Annotated[list[Degree], Field(min_length=1, max_length=len(DEGREES)), distinct] = Field(
        default_factory=lambda: [1], description="How many GPUs an instance may take; all of them on one node"
    )


class IterationSpec(Spec):
    """The time of one iteration at the highest clock, from these coefficients in milliseconds."""

    base_ms: NotNegativeValue = Field(description="Of any iteration")
    token_ms: NotNegativeValue = Field(description="Of each token computed, of prompts and of answers")
    weights_ms: NotNegativeValue = Field(0, description="Of reading the weights; tokens cost more only beyond it")
    sequence_ms: NotNegativeValue = Field(0, description="Of each request that decodes")
    kv_token_ms: NotNegativeValue = Field(0, description="Of each token held by the requests that decode")
    prompt_pair_ms: NotNegativeValue = Field(0, description="Of each prompt token times each token before it")
    mixed_ms: NotNegativeValue = Field(0, description="Of an iteration that computes prompts, beside their tokens")


class EngineSpec(Spec):
    """What a server that is spread over so many GPUs says of its memory and ranks when it starts."""

    cache_tokens: Count = Field(description="Tokens whose keys and values the memory of a data rank holds")
    block_tokens: Count = Field(16, description="Tokens of a block, in which memory is given to requests")
    prefix_caching: bool = Field(True, description="Blocks are found again until they are overwritten")
    data_ranks: Degree = Field(1, description="Schedulers with a queue and memory of their own")
    pipeline_ranks: Degree = Field(1, description="Parts of the layers, one after the other")
    tensor_ranks: Degree | None = Field(
        None, description="Parts of each layer; the GPUs of a pipeline part if left out"
    )
    expert_parallel: bool = Field(False, description="Experts are spread over the data ranks, which then step together")
    schedules_ahead: bool = Field(False, description="An iteration is composed while the one before it runs")


Engines: TypeAlias = Annotated[dict[DegreeKey, EngineSpec], Field(min_length=1)]
Iterations: TypeAlias = Annotated[dict[DegreeKey, IterationSpec], Field(min_length=1)]
TokensPerIteration: TypeAlias = Annotated[int, Field(ge=1, le=int(LARGEST))]


def _possible(lengths: LengthSpec) -> LengthSpec:
    if not lengths.mean <= lengths.p95 <= MOST_SPREAD * lengths.mean:
        raise rule_fault(
            f"no log-normal distribution has mean {lengths.mean:g} and 95th percentile {lengths.p95:g}",
            f"a p95 of {lengths.mean:g}..{MOST_SPREAD * lengths.mean:g}",
        )
    return lengths


class LengthSpec(Spec):
    """The lengths of inputs or outputs: log-normal, rounded, at least 1."""

    mean: Annotated[float, Field(ge=1, le=LARGEST)] = Field(description="Mean, in tokens")
    p95: Annotated[float, Field(ge=1, le=LARGEST)] = Field(description="What 95 % of them do not exceed, in tokens")


Lengths: TypeAlias = Annotated[LengthSpec, AfterValidator(_possible)]


class TokensSpec(Spec):
    """The lengths of a service's requests."""

    input: Lengths = Field(description="Tokens of a prompt")
    output: Lengths = Field(description="Tokens of an answer")
    prefix_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0, description="Part of the input tokens whose keys and values are in memory already"
    )


def slo_contradictions(spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
    """Yields what is wrong with the SLO of a service: it promises a latency, or times of tokens."""
    slo = spec.get("slo")
    if not isinstance(slo, dict):
        return
    promised = [field for field in ("ttftMs", "tpotMs") if field in slo]
    if not promised:
        if "latencyMs" not in slo:
            yield Contradiction("slo.latencyMs", "this field is required", "a number over 0: from arrival to answer")
        if "tokens" in spec:
            message = "only an SLO of ttftMs and tpotMs counts tokens"
            yield Contradiction("tokens", message, "leave tokens out, or promise ttftMs and tpotMs")
        return
    if "latencyMs" in slo:
        message = f"an SLO has latencyMs or {promised[0]}, not both"
        yield Contradiction("slo.latencyMs", message, "latencyMs alone, or ttftMs and tpotMs", slo["latencyMs"])
    for field in ("ttftMs", "tpotMs"):
        if field not in slo:
            message = f"an SLO with {promised[0]} needs {field}, too"
            yield Contradiction(f"slo.{field}", message, "a number over 0, in milliseconds")
    if "tokens" not in spec:
        message = f"a service that promises {promised[0]} needs the lengths of its requests"
        yield Contradiction("tokens", message, "{input: {mean, p95}, output: {mean, p95}}")
    for field, why in (
        ("burstiness", "its requests are taken to arrive as Poisson"),
        ("availability.surviveNodes", "a lost node is not planned for"),
    ):
        if _differs(spec, field):
            message = f"with an SLO of tokens {why}"
            yield Contradiction(field, message, "leave it out")


def _differs(spec: Mapping[str, JSON], field: str) -> bool:
    value: object = spec
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    default = 1 if field == "burstiness" else 0
    return number(value) is not None and value != default


def profile_contradictions(spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
    """Yields what is wrong between the two forms of a profile: latencies by batch, or iterations by degree."""
    if "iteration" in spec:
        for field, why in (
            ("latencyMs", "a profile has latencyMs or iteration, not both"),
            ("memoryGib", "the memory of an iteration's tokens follows from the variant's llm"),
            ("pressure", "an instance of a language model has no neighbours on its GPUs"),
            ("sensitivity", "an instance of a language model has no neighbours on its GPUs"),
        ):
            if field in spec:
                yield Contradiction(field, why, f"leave {field} out beside iteration")
        yield from _engine_contradictions(spec)
        return
    for field, noun in (("latencyMs", "batch -> SM% -> milliseconds"), ("memoryGib", "batch -> GiB")):
        if field not in spec:
            yield Contradiction(field, "this field is required", f"a mapping: {noun}")
    for field in ("adapters", "engine", "overheadGib", "tokensPerIteration"):
        if field in spec:
            yield Contradiction(field, f"{field} is of a profile with iteration", "leave it out beside latencyMs")


def _engine_contradictions(spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
    engines = spec.get("engine")
    for degree, engine in engines.items() if isinstance(engines, dict) else ():
        gpus = _DEGREE_KEYS.get(degree)
        if gpus is None or not isinstance(engine, dict):
            continue
        ranks = [engine.get(field, 1) for field in ("dataRanks", "pipelineRanks", "tensorRanks")]
        if not all(rank in DEGREES for rank in ranks):
            continue
        taken = prod(int(str(rank)) for rank in ranks)
        if taken > gpus or ("tensorRanks" in engine and taken < gpus):
            message = f"its ranks take {taken} GPUs, not {gpus}"
            yield Contradiction(f"engine.{degree}", message, "dataRanks x pipelineRanks x tensorRanks = its GPUs")
