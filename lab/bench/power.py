"""Compares the power loop's law with Morak's Algorithm 1 as printed, and with a plan that no loop moves."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say
from cli.exits import Failed

if TYPE_CHECKING:
    from agents.policy.power import GpuPeriod, PowerMove, PowerSettings, PowerState
    from lab.power.plant import Period
    from lab.power.trial import Law, PowerCase

SHOWN = (
    "law", "alpha", "beta", "requests_per_second", "joules_per_request", "cap_violations", "longest_over_cap",
    "slo_violations", "moves_per_minute",
)  # fmt: skip
ALPHAS = (0.8, 0.85, 0.9, 0.95, 1.0)
BETAS = (0.7, 0.8, 0.9, 1.0)
STEP_SECONDS = 30  # from one step of the load to the next
WARM_SECONDS = 120  # not measured: the printed algorithm climbs from the plan, a notch a second
LEAST_LOAD_SHARE, MOST_LOAD_SHARE = 0.1, 1.1  # of what the planned values can serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", metavar="K", type=whole(1), default=20, help="random GPUs; default 20")
    parser.add_argument("--seconds", metavar="S", type=whole(60), default=600, help="virtual time of each; default 600")
    parser.add_argument("--seed", metavar="N", type=whole(0), default=0, help="of the first case; default 0")
    parser.add_argument("--out", metavar="DIR", help="draw power.svg into this folder")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each law and pair of bands, over the same GPUs under the same load."""
    from agents.policy.power import law
    from lab.power import printed
    from lab.power.trial import random_case

    if args.out:
        refuse_undrawable(Path(args.out))
    seeds = range(args.seed, args.seed + args.cases)
    cases = {seed: random_case(seed) for seed in seeds}
    rows = [try_law("plan", keep_plan, cases, args.seconds, None, None)]
    for name, step in (("ours", law.step), ("printed", printed.step)):
        for alpha in ALPHAS:
            say(f"{name}, alpha {alpha:g}: {len(cases)} GPUs, {len(BETAS)} x {args.seconds} s each")
            rows += [try_law(name, step, cases, args.seconds, alpha, beta) for beta in BETAS]
    if args.out:
        from lab.bench.power_plot import draw

        file = Path(args.out) / "power.svg"
        say("power and latency over their limits, and a step of the load")
        draw(rows, setpoints(), load_step(), file)
        say(f"drawn: {file}")
    return {"rows": rows, "cases": args.cases, "seconds": args.seconds, "seed": args.seed}


def keep_plan(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Moves nothing: a plan without a loop."""
    from agents.policy.power import PowerMove

    clock_mhz = round(period.frame.planned) if period.frame else None
    batches = {instance.id: round(instance.frame.planned) for instance in period.instances if instance.frame}
    return PowerMove(state, clock_mhz, batches)


def try_law(
    name: str, step: Law, cases: Mapping[int, PowerCase], seconds: int, alpha: float | None, beta: float | None
) -> dict[str, Any]:
    """Runs a law on all cases: shares of periods over a limit, and what was served for how many joules."""
    from agents.policy.power import PowerSettings
    from lab.power.trial import random_rates, start

    served = joules = 0.0
    periods = over = late = longest = moves = latencies = 0
    for seed, case in cases.items():
        settings = PowerSettings() if alpha is None or beta is None else PowerSettings(alpha=alpha, beta=beta)
        run, draw, row = start(case, step, settings, seed), Random(seed), 0  # noqa: S311 (a benchmark's randomness)
        for second in range(WARM_SECONDS + seconds):
            if second % STEP_SECONDS == 0:
                rates = random_rates(case, draw, MOST_LOAD_SHARE, LEAST_LOAD_SHARE)
            if second == WARM_SECONDS:
                run.moves = 0
            found = run.period(rates)
            if second < WARM_SECONDS:
                continue
            is_over = found.peak_w > case.cap_w
            row = row + 1 if is_over else 0
            periods, over, longest = periods + 1, over + is_over, max(longest, row)
            late += sum(is_late(case, found, name) for name in found.served)
            latencies += len(found.served)
            served += sum(service.requests for service in found.served.values())
            joules += found.mean_w
        moves += run.moves
    return {
        "law": name,
        "alpha": alpha,
        "beta": beta,
        "requests_per_second": served / periods,
        "joules_per_request": joules / served,
        "cap_violations": over / periods,
        "longest_over_cap": longest,
        "slo_violations": late / latencies,
        "moves_per_minute": 60 * moves / periods,
    }


def is_late(case: PowerCase, found: Period, name: str) -> bool:
    return (found.served[name].latency_ms or 0.0) > case.slo_ms[name]


# What the picture shows besides the sweep


def setpoints() -> dict[str, list[dict[str, float]]]:
    """Runs a GPU under a fixed load at many caps and SLOs, to show how far each law uses a limit, and keeps it."""
    from agents.policy.power import law
    from lab.power import printed

    found: dict[str, list[dict[str, float]]] = {}
    for name, step in (("ours", law.step), ("printed", printed.step)):
        for cap_w in range(150, 361, 15):
            case = replace(shown_case(), cap_w=float(cap_w))
            found.setdefault(f"{name} cap", []).append({"limit": case.cap_w, **settle(case, step)})
        for slo_ms in range(30, 101, 5):
            case = replace(shown_case(), slo_ms=dict.fromkeys(shown_case().slo_ms, float(slo_ms)))
            found.setdefault(f"{name} slo", []).append({"limit": float(slo_ms), **settle(case, step)})
    return found


def settle(case: PowerCase, step: Law) -> dict[str, float]:
    """Returns medians of the last minute of five."""
    from statistics import median

    from agents.policy.power import PowerSettings
    from lab.power.trial import start

    run = start(case, step, PowerSettings(), 0)
    found = [run.period(shown_rates(case, 0.75)) for _ in range(300)][-60:]
    latencies = [max(service.latency_ms or 0.0 for service in period.served.values()) for period in found]
    return {"peak_w": median(period.peak_w for period in found), "latency_ms": median(latencies)}


def load_step() -> dict[str, list[dict[str, float]]]:
    """Runs a step of the load up and down, second by second."""
    from agents.policy.power import PowerSettings, law
    from lab.power import printed
    from lab.power.trial import start

    traces: dict[str, list[dict[str, float]]] = {}
    for name, step in (("ours", law.step), ("printed", printed.step), ("plan", keep_plan)):
        case = replace(shown_case(), cap_w=260.0)
        run = start(case, step, PowerSettings(), 0)
        for second in range(-180, 180):
            clock = run.clock_mhz
            found = run.period(shown_rates(case, 1.1 if 20 <= second < 90 else 0.45))
            if second >= 0:
                row = {"second": second, "peak_w": found.peak_w, "cap_w": case.cap_w, "clock_mhz": clock}
                traces.setdefault(name, []).append(row)
    return traces


def shown_case() -> PowerCase:
    """Returns four instances of a model on a GPU of 400 W."""
    from agents.contract.assignments import Frame
    from lab.power.plant import PlantServer
    from lab.power.trial import CLOCKS_MHZ, PowerCase

    servers = tuple(PlantServer(f"s{number}", 12.0, 0.8, 90.0) for number in range(4))
    clock = Frame(1290, CLOCKS_MHZ[0], CLOCKS_MHZ[-1])
    batches = {server.id: Frame(16, 1, 32) for server in servers}
    return PowerCase(servers, dict.fromkeys(batches, 100.0), batches, clock, 300.0, 45.0)


def shown_rates(case: PowerCase, load: float) -> dict[str, float]:
    from lab.power.trial import capacity

    return {server.id: load * capacity(case, server, case.clock.planned, 16) for server in case.servers}


def refuse_undrawable(folder: Path) -> None:
    """Refuses what cannot be drawn before anything is measured."""
    if not folder.is_dir():
        raise Failed(f"--out {folder} is no folder")
