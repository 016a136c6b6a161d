"""Random servers of language models as planners see them: with profiles of the examples and of family L."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, TypeAlias, cast

from app.manifests.model import Kind, Manifest
from app.manifests.offline import load
from benchmarks.language_models import CONTEXT_TOKENS, GIB, LARGE, MODELS, profile_of
from cli.token_latency import camel
from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.planning.fleet.token_shapes import BATCHES
from tests.solvers.llm.drawn import Draws, TokenQuestion, alone_ms, quantile

ServerKind: TypeAlias = tuple[IterationCost, int, int]  # the tokens that memory holds, and those of a context

EXAMPLES = Path(__file__).parents[3] / "examples"
MEMORY_GIB, OVERHEAD_GIB = 80.0, 4.0  # of every GPU with such a profile
PERCENTILES = (90.0, 95.0, 98.0, 99.0, 99.5)


def planned_question(seed: int) -> TokenQuestion:
    """Returns a server that holds a whole context, half of them little more, and a promise."""
    draws = Draws(seed)
    even, generator = draws.even, draws.generator
    cost, kv_tokens, context = _kinds()[int(generator.integers(len(_kinds())))]
    batch, budget = int(generator.choice(BATCHES)), int(generator.choice([512, 2048, 2048, 8192]))
    inputs, outputs = even(100, 0.4 * context), even(20, 600)
    lengths = TokenLengths(
        inputs, inputs * generator.uniform(1.2, 3.6), outputs, outputs * generator.uniform(1.2, 3.6),
        draws.or_zero(generator.uniform(0, 0.8)), context,
    )  # fmt: skip
    if generator.integers(2):
        kv_tokens = int(min(kv_tokens, context * even(1, 6)))
    percentile = float(generator.choice(PERCENTILES))
    tail = min(context - 1, quantile(*lengths.input, NormalDist().inv_cdf(percentile / 100)))
    ttft_ms = alone_ms(cost, budget, tail, lengths.prefix_share) * even(1.5, 30)
    tpot_ms = cost.milliseconds(0, 0, 1, tail + outputs) * even(1.2, 6)
    return cost, BatchingLimits(batch, budget, kv_tokens), lengths, TokenPromise(ttft_ms, tpot_ms, percentile)


@cache
def _kinds() -> list[ServerKind]:
    """Returns all servers whose memory holds a context."""
    found = [*_of_example("language-models.yaml"), *_of_example("llm.yaml")]
    for model in MODELS:
        for large in LARGE:
            for degree, cost in profile_of(model, large).iteration.items():
                left_gib = (MEMORY_GIB - OVERHEAD_GIB) * degree - 2 * model[1] / GIB
                found.append((cost, int(left_gib * GIB // model[3]), CONTEXT_TOKENS))
    return [kind for kind in found if kind[1] >= kind[2]]


def _of_example(name: str) -> list[ServerKind]:
    manifests = load([EXAMPLES / name])
    models, profiles = (_specs(manifests.of(kind)) for kind in (Kind.MODEL, Kind.PROFILE))
    sizes = {model: spec["variants"][0].get("llm") for model, spec in models.items()}
    found = []
    for spec in profiles.values():
        size = sizes[spec["model"]]
        for degree, coefficients in spec.get("iteration", {}).items():
            cost = IterationCost(**{name: coefficients.get(camel(name), 0.0) for name in IterationCost.__slots__})
            left_gib = (MEMORY_GIB - OVERHEAD_GIB) * int(degree) - size["weightsGib"]
            found.append((cost, int(left_gib * GIB // size["kvBytesPerToken"]), int(size["contextTokens"])))
    return found


def _specs(manifests: Iterable[Manifest]) -> dict[str, dict[str, Any]]:
    return {manifest.name: cast(dict[str, Any], manifest.spec) for manifest in manifests}
