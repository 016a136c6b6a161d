"""Language models in a planning problem: their memory, and what a service promises of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.llm.iteration import EngineForm as EngineForm
from solvers.llm.iteration import IterationCost as IterationCost
from solvers.llm.iteration import TokenLengths as TokenLengths
from solvers.llm.iteration import TokenPromise as TokenPromise


@dataclass(frozen=True, slots=True)
class LlmSize:
    """The GPU memory that a variant of a language model holds, and over how many GPUs an instance may be spread."""

    weights_gib: float
    kv_bytes_per_token: float
    context_tokens: int
    degrees: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """What a server said of its memory and its form when it started."""

    cache_tokens: int  # of each data rank
    form: EngineForm


@dataclass(frozen=True, slots=True)
class AdapterPlaces:
    """The places for LoRA adapters that a server can keep from its start on, and what they cost it."""

    places: int
    max_rank: int
    place_gib: float  # of each GPU
    slowdown: float  # share by which an iteration is longer


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """A fine-tune of a language model; where its folder is concerns no plan, and the nodes that load it."""

    name: str
    path: str
    rank: int


@dataclass(frozen=True, slots=True)
class TokenService:
    """The promise of a service on a language model, and the lengths of its requests."""

    promise: TokenPromise
    lengths: TokenLengths
    adapters: tuple[LoraAdapter, ...] = ()  # each of its instances holds them all
