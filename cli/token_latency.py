"""`gpuwright latency --iteration`: the largest rate at which a server of a language model keeps an SLO of tokens."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from cli import exits, sources
from cli.arguments import finite, positive, whole
from cli.exits import Failed

if TYPE_CHECKING:
    from typing import TypeAlias

    from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise

    Question: TypeAlias = tuple[IterationCost, BatchingLimits, TokenLengths, TokenPromise]

REQUIRED = ("--input-mean", "--output-mean", "--ttft-ms", "--tpot-ms", "--sequences", "--kv-tokens")
LENGTHS = ("--input-p95", "--output-p95", "--prefix-share", "--context-tokens")
OPTIONAL = (*LENGTHS, "--tokens-per-iteration", "--data-ranks", "--experts", "--rate")
FLAGS = REQUIRED + OPTIONAL
P95_BY_MEAN = 3.0  # as of lengths that are exponential
CONTEXT_TOKENS = 131_072
TOKENS_PER_ITERATION = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tokens = parser.add_argument_group("a server of a language model")
    tokens.add_argument("--iteration", metavar="FILE", help="coefficients of an iteration's time")
    for what in ("input", "output"):
        tokens.add_argument(f"--{what}-mean", type=positive, metavar="N", help=f"mean {what} tokens of a request")
        about = f"95th percentile of {what} tokens; default {P95_BY_MEAN:g} times the mean"
        tokens.add_argument(f"--{what}-p95", type=positive, metavar="N", help=about)
    about = "share of input tokens in the prefix cache: 0 (the default) to 1"
    tokens.add_argument("--prefix-share", type=finite, metavar="S", help=about)
    tokens.add_argument("--ttft-ms", type=positive, metavar="MS", help="the SLO's time to the first token")
    tokens.add_argument("--tpot-ms", type=positive, metavar="MS", help="the SLO's time of each token after the first")
    tokens.add_argument("--sequences", type=whole(1, 10_000), metavar="N", help="requests that run at once, at most")
    tokens.add_argument("--kv-tokens", type=whole(1), metavar="K", help="tokens that memory holds beside the weights")
    about = f"tokens computed in an iteration, at most; default {TOKENS_PER_ITERATION}"
    tokens.add_argument("--tokens-per-iteration", type=whole(1), metavar="T", help=about)
    about = f"input and output of a request together, at most; default {CONTEXT_TOKENS}"
    tokens.add_argument("--context-tokens", type=whole(2, 2_000_000), metavar="C", help=about)
    about = "schedulers that have these limits each, and a queue; 1, 2, 4 or 8; default 1"
    tokens.add_argument("--data-ranks", type=int, choices=(1, 2, 4, 8), metavar="N", help=about)
    about = "experts are spread over the ranks, which step together"
    tokens.add_argument("--experts", action="store_true", default=None, help=about)
    about = "requests a second: simulate this rate and tell if it keeps the SLO"
    tokens.add_argument("--rate", type=positive, metavar="R", help=about)


def run(args: argparse.Namespace, batch_flags: Sequence[str]) -> int:
    faults = [f"{flag} is not for --iteration" for flag in batch_flags]
    faults += [f"{flag} is missing" for flag in REQUIRED if getattr(args, flag[2:].replace("-", "_")) is None]
    if not 50.0 <= args.percentile <= 99.9:
        faults.append(f"--percentile {args.percentile:g} is outside 50..99.9")
    if faults:
        raise _make_failure(faults)
    question = _read_question(args)
    found = _judge(question, args.rate) if args.rate is not None else _largest(question)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:.6g}" if isinstance(value, float) else f"{name:20} {str(value).lower()}")
    return exits.OK if found.get("kept", True) else exits.NO


def _largest(question: Question) -> dict[str, Any]:
    from solvers.llm.capacity import capacity

    found = capacity(*question)
    return {
        "ratePerSecond": found.rate_per_second,
        "ttftMs": found.ttft_ms,
        "tpotMs": found.tpot_ms,
        "meanSequences": found.mean_sequences,
        "busyShare": found.busy_share,
    }


def _judge(question: Question, rate_per_second: float) -> dict[str, Any]:
    from solvers.llm.judged import holds

    found = holds(*question, rate_per_second)
    return {
        "kept": found.kept,
        "ttftShare": found.ttft.share,
        "tpotShare": found.tpot.share,
        "memoryShare": found.memory.share,
        "preemptions": found.preemptions,
        "tooLong": found.too_long,
        "peakKvTokens": found.peak_kv_tokens,
        "meanSequences": found.mean_sequences,
        "requests": found.requests,
    }


def _read_question(args: argparse.Namespace) -> Question:
    from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost, TokenLengths, TokenPromise

    coefficients = _coefficients(args.iteration, {camel(field.name): field.name for field in fields(IterationCost)})
    try:
        cost = IterationCost(**coefficients)
    except ValueError as error:
        name, _, fault = str(error).partition(" ")
        raise Failed(f"{args.iteration}: {camel(name)} {fault}") from None
    if cost.base_ms + cost.token_ms <= 0:
        raise Failed(f"{args.iteration}: baseMs and tokenMs are both 0; at least one must be more")
    try:
        lengths = TokenLengths(
            args.input_mean,
            args.input_p95 or P95_BY_MEAN * args.input_mean,
            args.output_mean,
            args.output_p95 or P95_BY_MEAN * args.output_mean,
            args.prefix_share or 0.0,
            args.context_tokens or CONTEXT_TOKENS,
        )
    except ValueError as error:
        name, _, fault = str(error).partition(" ")
        raise Failed(f"--{name.replace('_', '-')} {fault}") from None
    form = EngineForm(data_ranks=args.data_ranks or 1, experts=bool(args.experts))
    limits = BatchingLimits(args.sequences, args.tokens_per_iteration or TOKENS_PER_ITERATION, args.kv_tokens, form)
    return cost, limits, lengths, TokenPromise(args.ttft_ms, args.tpot_ms, args.percentile)


def _coefficients(word: str, names: Mapping[str, str]) -> dict[str, float]:
    """Reads the file of coefficients; raises with everything that is wrong in it."""
    from app.manifests import yaml_text
    from app.manifests.faults import ManifestsRefused
    from app.manifests.limits import OBJECT

    ((name, text),) = sources.read([word])
    try:
        documents, _ = yaml_text.load(text, OBJECT, name)
    except ManifestsRefused as refused:
        raise _make_failure([str(fault) for fault in refused.faults]) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise Failed(f"{name} is not one mapping of coefficients: {', '.join(names)}")
    given = documents[0]
    faults = [f"{name}: {key} is unknown; allowed are {', '.join(names)}" for key in given if key not in names]
    faults += [f"{name}: {key} is missing" for key in ("baseMs", "tokenMs") if key not in given]
    for key, value in given.items():
        if key in names and (isinstance(value, bool) or not isinstance(value, int | float)):
            faults.append(f"{name}: {key} {value!r} is not a number")
    if faults:
        raise _make_failure(faults)
    return {names[key]: float(value) for key, value in given.items()}  # type: ignore[arg-type]


def camel(name: str) -> str:
    """Returns a coefficient's name as manifests spell it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _make_failure(faults: Sequence[str]) -> Failed:
    if len(faults) == 1:
        return Failed(faults[0])
    return Failed(f"{len(faults)} arguments are wrong", particulars=faults)
