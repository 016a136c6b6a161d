"""`gpuwright latency`: the largest rate that a batch server, or a server of a language model, carries under an SLO."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from cli import exits, token_latency
from cli.arguments import finite, whole
from cli.exits import Failed

BATCH_FLAGS = ("--batch", "--exec-ms", "--slo-ms", "--burstiness")
EPILOG = """\
A batch takes the same time at any fill. A free server starts when the batch is full, or when the oldest request
has waited the batch timeout (0: at once). Requests arrive as Poisson, or in bursts. Neither utilization nor a margin
is taken off.

With --iteration, the server is that of a language model, which batches continuously (docs/token-model.md): FILE
has its coefficients as YAML or JSON, baseMs and tokenMs, and as needed weightsMs, sequenceMs, kvTokenMs, promptPairMs
and mixedMs; - is stdin. --rate asks whether one rate keeps the promise, by the simulation that plans are judged by.

Examples:
  gpuwright latency --batch 8 --exec-ms 20 --slo-ms 60 --percentile 99
  gpuwright latency --batch 8 --exec-ms 20 --slo-ms 60 --percentile 99 --json
  gpuwright latency --batch 8 --exec-ms 20 --slo-ms 60 --percentile 99 --burstiness 4
  gpuwright latency --iteration cost.yaml --input-mean 1155 --output-mean 211 --ttft-ms 1000 --tpot-ms 50 \\
    --percentile 99 --sequences 128 --kv-tokens 400000 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--batch", type=whole(0), metavar="N", help="largest batch: 1..256")
    parser.add_argument("--exec-ms", type=finite, metavar="MS", help="time of one batch")
    parser.add_argument("--slo-ms", type=finite, metavar="MS", help="the SLO's latency, from arrival")
    parser.add_argument(
        "--percentile",
        type=finite,
        required=True,
        metavar="P",
        help="share of requests within the SLO, in percent: 50..99.9",
    )
    parser.add_argument(
        "--burstiness",
        type=finite,
        metavar="I",
        help="variance over mean of arrivals counted in windows of the SLO: 1 (Poisson, the default) to 50",
    )
    token_latency.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    if args.iteration is not None:
        return token_latency.run(args, _list_given(args, BATCH_FLAGS))
    faults = _missing(args, BATCH_FLAGS[:3]) + [
        f"{flag} needs --iteration" for flag in _list_given(args, token_latency.FLAGS)
    ]
    args.burstiness = 1.0 if args.burstiness is None else args.burstiness
    faults = faults or _faults(args)
    if faults:
        raise (
            Failed(faults[0]) if len(faults) == 1 else Failed(f"{len(faults)} arguments are wrong", particulars=faults)
        )
    from solvers.latency import latency_at, max_bursty_rate, variation_of

    rate_per_second, timeout_ms = max_bursty_rate(
        args.batch, args.exec_ms, args.slo_ms, args.percentile, args.burstiness
    )
    if args.json:
        print(json.dumps({"ratePerSecond": rate_per_second, "batchTimeoutMs": timeout_ms}))
        return exits.OK
    if rate_per_second <= 0.0:
        print(f"rate           0: {_why(args.exec_ms, args.slo_ms, args.percentile, args.burstiness)}")
        return exits.OK
    load = rate_per_second * args.exec_ms / 1000.0 / args.batch
    variation = variation_of(args.burstiness, rate_per_second, args.slo_ms)
    latency_ms = latency_at(args.batch, args.exec_ms, rate_per_second, args.percentile, timeout_ms, variation)
    print(f"rate           {rate_per_second:.6g} per second")
    print(f"batch timeout  {timeout_ms:.6g} ms" + ("" if timeout_ms else " (start at once)"))
    print(f"load           {100.0 * load:.1f} % of what full batches could carry")
    print(f"latency        {latency_ms:.6g} ms at percentile {args.percentile:g}")
    return exits.OK


def _list_given(args: argparse.Namespace, flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if getattr(args, flag[2:].replace("-", "_")) is not None]


def _missing(args: argparse.Namespace, flags: Sequence[str]) -> list[str]:
    given = _list_given(args, flags)
    return [f"{flag} is missing" for flag in flags if flag not in given]


def _faults(args: argparse.Namespace) -> list[str]:
    found = []
    if not 1 <= args.batch <= 256:
        found.append(f"--batch {args.batch} is outside 1..256")
    for flag, value in (("--exec-ms", args.exec_ms), ("--slo-ms", args.slo_ms)):
        if not 1e-6 <= value <= 1e12:
            found.append(f"{flag} {value:g} is outside 1e-6..1e12")
    if not 50.0 <= args.percentile <= 99.9:
        found.append(f"--percentile {args.percentile:g} is outside 50..99.9")
    if not 1.0 <= args.burstiness <= 50.0:
        found.append(f"--burstiness {args.burstiness:g} is outside 1..50")
    return found


def _why(exec_ms: float, slo_ms: float, percentile: float, burstiness: float) -> str:
    if slo_ms <= exec_ms:
        return f"a batch alone takes {exec_ms:g} ms, and the SLO is {slo_ms:g} ms; it must be longer"
    if burstiness > 1.0:
        return f"one burst of arrivals with a dispersion of {burstiness:g} is more than it serves within {slo_ms:g} ms"
    return f"{percentile:g} % within {slo_ms:g} ms leaves no room for waiting; from {2 * exec_ms:g} ms on there is much"
