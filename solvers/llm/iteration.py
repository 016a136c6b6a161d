"""The time of an iteration of a language model's server, its limits, and the lengths and promises of its requests."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, log, sqrt

NORMAL_P95 = 1.6448536269514722  # standard deviations above the mean
MOST_P95 = exp(NORMAL_P95**2 / 2)  # times the mean: no log-normal length has a larger 95th percentile
MOST_CONTEXT = 2_000_000


@dataclass(frozen=True, slots=True)
class IterationCost:
    """The coefficients of an iteration's time on one GPU type at one parallel degree, at the highest clock.

    An iteration reads the weights once and computes every token, whichever of the two takes longer; attention reads the
    keys and values of the requests that decode, and compares each prompt token with those before it.
    """

    base_ms: float  # of any iteration: launches, scheduling, communication
    token_ms: float  # of each token computed, of prompts and of answers
    weights_ms: float = 0.0  # of reading the weights once; tokens are free until they take longer than this
    sequence_ms: float = 0.0  # of each request that decodes
    kv_token_ms: float = 0.0  # of each token held whose keys and values a decoding request reads
    prompt_pair_ms: float = 0.0  # of each prompt token times each token before it
    mixed_ms: float = 0.0  # of an iteration that computes prompts: engines replay recorded launches only without them

    def __post_init__(self) -> None:
        for coefficient in fields(self):
            value = getattr(self, coefficient.name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{coefficient.name} {value} is not a finite number of at least 0")

    def milliseconds(self, prompt_tokens: float, prompt_pairs: float, sequences: float, kv_tokens: float) -> float:
        """Returns the time of an iteration that computes so many prompt tokens and one token for each sequence."""
        computing = self.token_ms * (prompt_tokens + sequences)
        attention = self.kv_token_ms * kv_tokens + self.prompt_pair_ms * prompt_pairs
        mixed = self.mixed_ms if prompt_tokens > 0 else 0.0
        return self.base_ms + max(self.weights_ms, computing) + self.sequence_ms * sequences + attention + mixed


@dataclass(frozen=True, slots=True)
class EngineForm:
    """How an engine keeps its memory, composes iterations and divides its work among GPUs."""

    block_tokens: int = 16  # of memory, which is given to requests in blocks
    prefix_caching: bool = True  # a preempted request finds its blocks again where nobody has overwritten them
    data_ranks: int = 1  # each has a queue, limits and memory of its own
    experts: bool = False  # spread over the ranks: these step together, and each waits for the slowest
    schedules_ahead: bool = False  # an iteration is composed when the one before it begins

    def __post_init__(self) -> None:
        for name in ("block_tokens", "data_ranks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} is not at least 1")


@dataclass(frozen=True, slots=True)
class BatchingLimits:
    """The limits of an iteration: requests at once, tokens computed, and tokens held in GPU memory."""

    sequences: int
    tokens_per_iteration: int  # of prompts and answers together: a longer prompt is computed in several iterations
    kv_tokens: int  # held by all requests at once, beside the weights
    form: EngineForm = EngineForm()  # with several data ranks these are the limits of each

    def __post_init__(self) -> None:
        for limit in ("sequences", "tokens_per_iteration", "kv_tokens"):
            if getattr(self, limit) < 1:
                raise ValueError(f"{limit} {getattr(self, limit)} is not at least 1")

    @property
    def counts(self) -> tuple[int, int, int]:
        """Returns the limits in the order of compiled loops."""
        return self.sequences, self.tokens_per_iteration, self.kv_tokens


@dataclass(frozen=True, slots=True)
class TokenLengths:
    """The lengths of requests: both log-normal, cut at 1 and at the model's context, and independent."""

    input_mean: float
    input_p95: float
    output_mean: float
    output_p95: float
    prefix_share: float = 0.0  # of the input tokens of each request: keys and values that are there already
    context_tokens: int = 131_072  # input and output of a request have at most so many together

    def __post_init__(self) -> None:
        for name, mean, p95 in (("input", *self.input), ("output", *self.output)):
            if not 1 <= mean < float("inf"):
                raise ValueError(f"{name}_mean {mean} is not a finite number of at least 1")
            if not mean <= p95 <= MOST_P95 * mean:
                raise ValueError(f"{name}_p95 {p95} is outside {mean:g}..{MOST_P95 * mean:g}, which its mean allows")
        if not 0 <= self.prefix_share < 1:
            raise ValueError(f"prefix_share {self.prefix_share} is outside 0..1, without 1")
        if not 2 <= self.context_tokens <= MOST_CONTEXT:
            raise ValueError(f"context_tokens {self.context_tokens} is outside 2..{MOST_CONTEXT}")

    @property
    def input(self) -> tuple[float, float]:
        return self.input_mean, self.input_p95

    @property
    def output(self) -> tuple[float, float]:
        return self.output_mean, self.output_p95


@dataclass(frozen=True, slots=True)
class TokenPromise:
    """An SLO of tokens: this share of requests gets the first token in time, and as large a share keeps the pace."""

    ttft_ms: float  # from arrival to the first token
    tpot_ms: float  # last token minus first, over the tokens after the first
    percentile: float  # of requests, in percent


def log_normal(mean: float, p95: float) -> tuple[float, float]:
    """Returns the mean and the standard deviation of the logarithm, from the mean and the 95th percentile.

    mean = exp(m + s^2 / 2) and p95 = exp(m + 1.645 s); of the two solutions, the one that spreads less.
    """
    deviation = NORMAL_P95 - sqrt(max(0.0, NORMAL_P95**2 - 2 * log(p95 / mean)))
    return log(mean) - deviation**2 / 2, deviation
