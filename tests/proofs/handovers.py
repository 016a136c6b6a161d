"""SM% changes on one node under a steady load through HAProxy: `python -m tests.proofs.handovers --changes 200`.

Every change is a hand-over of a real process; HAProxy is reloaded at random moments. Counted are failed requests, and
the latencies of those sent during a change against those sent without.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.assignments import AssignedInstance
from agents.node.node import LocalNode
from simulation.real.open_loop import percentile
from tests.support.haproxy import Gateway, running_gateway
from tests.support.load import Sample, steady_load
from tests.support.nodes import assigned, machine, ready, running, served
from tests.support.patience import until

SERVICES = ("alpha", "beta", "gamma")
# The shares that the three may have, so that they fill a GPU to about 60 % or 97 % at any time.
SHARES = {60: ((18, 20, 22), (18, 20, 22), (16, 18, 20)), 97: ((30, 31, 32), (30, 31, 32), (31, 32, 33))}
LATENCY = "1:10=2,100=2;8:10=4,100=4"
RELOAD_EVERY_SECONDS = 2.0


@dataclass(slots=True)
class Result:
    """What was seen of one packing and one mode."""

    packing: int
    mode: str
    changes: int = 0
    held: int = 0
    reloads: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)  # of changes, time.monotonic()
    samples: list[Sample] = field(default_factory=list)

    @property
    def failed(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.failed]

    def split(self) -> tuple[list[float], list[float]]:
        """Latencies of requests that were due during a change, and of the others."""
        during: list[float] = []
        without: list[float] = []
        for sample in self.samples:
            inside = any(start <= sample.at < end for start, end in self.spans)
            (during if inside else without).append(sample.latency_ms)
        return during, without


def instances(shares: Sequence[float]) -> tuple[AssignedInstance, ...]:
    made = []
    for service, share in zip(SERVICES, shares, strict=True):
        instance = served(f"{service}-1", sm=share, memory=1.5)
        made.append(msgspec.structs.replace(instance, args={"model": "m", "latency": LATENCY}))
    return tuple(made)


def prove(
    packing: int, mode: str, changes: int, rate: float, seed: int, folder: Path, pause: float, **parts: Any
) -> Result:  # fmt: skip
    """Make that many changes; those for which there is no order are counted as held back, by their reason.

    `parts` are of the node, where they are not the usual ones.
    """
    chance = random.Random(seed)
    result = Result(packing, mode)
    with ExitStack() as around, ExitStack() as loads:
        made = around.enter_context(machine(folder / "node", ["v100-16gb"]))
        gateway = around.enter_context(running_gateway(folder / "gateway"))
        node = around.enter_context(running(made, routes=gateway.routes(), **parts))
        shares = [options[1] for options in SHARES[packing]]
        shares[2] = min(shares[2], 100 - shares[0] - shares[1])
        node.offer(assigned(1, *instances(shares), handover=mode))
        until(lambda: ready(node, *(f"{service}-1" for service in SERVICES)), "all serve")
        started = [
            loads.enter_context(
                steady_load(
                    gateway.port, f"/shop/{service}/v1/models/m:infer", rate_per_second=rate / 3, method="POST",
                    body="{}",
                )
            )
            for service in SERVICES
        ]  # fmt: skip
        with reloads(gateway, result, chance):
            time.sleep(pause * 4)
            for generation in range(2, changes + 2):
                change(node, shares, packing, mode, generation, chance, result)
                time.sleep(pause)
        for load in started:
            result.samples += load.stop().samples
    return result


def change(
    node: LocalNode, shares: list[int], packing: int, mode: str, generation: int, chance: random.Random, result: Result
) -> None:
    """One service gets another share, such that all shares fit together when it is done."""
    while True:
        which = chance.randrange(len(SERVICES))
        share = chance.choice([one for one in SHARES[packing][which] if one != shares[which]])
        if sum(shares) - shares[which] + share <= 100:
            break
    wanted = [*shares[:which], share, *shares[which + 1 :]]
    name = f"{SERVICES[which]}-1"
    start = time.monotonic()
    node.offer(assigned(generation, *instances(wanted), handover=mode))
    try:
        until(lambda: done(node, name, share) or is_held(node, name), f"{name} has {share} %")
    except AssertionError:
        stands = [(copy.id, copy.stage, copy.reason) for copy in node.keeper.copies()]
        raise AssertionError(f"{stands}; held {node.keeper.held}; gateway {node.keeper.gateway_away}") from None
    result.changes += 1
    if is_held(node, name):
        result.held += 1
        node.offer(assigned(generation, *instances(shares), handover=mode))  # the plan takes it back
        until(lambda: not node.keeper.held, "nothing is held back")
        return
    result.spans.append((start, time.monotonic()))
    shares[:] = wanted


def done(node: LocalNode, name: str, share: float) -> bool:
    copies = [copy for copy in node.keeper.copies() if copy.instance == name]
    return len(copies) == 1 and copies[0].wanted.sm_percent == share and copies[0].stage == "ready"


def is_held(node: LocalNode, name: str) -> bool:
    return any(one.instance == name and one.missing.reason == "no_room_to_hand_over" for one in node.keeper.held)


@contextmanager
def reloads(gateway: Gateway, result: Result, chance: random.Random) -> Iterator[None]:
    """HAProxy is reloaded at random moments."""
    over = threading.Event()

    def reload() -> None:
        while not over.wait(chance.uniform(0.2, 2 * RELOAD_EVERY_SECONDS)):
            gateway.reload()
            result.reloads += 1

    thread = threading.Thread(target=reload, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def plot(results: Sequence[Result], path: Path) -> None:
    """Latency percentiles during a change and without, by packing and mode."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(3.2 * len(results), 3.2), sharey=True, squeeze=False)
    for axis, result in zip(axes[0], results, strict=True):
        for latencies, label in zip(result.split(), ("during a change", "without"), strict=True):
            ordered = sorted(latencies)
            if ordered:
                shares = [1 - number / len(ordered) for number in range(len(ordered))]
                axis.plot(ordered, shares, label=label)
        axis.set(xscale="log", yscale="log", xlabel="latency, ms", title=f"{result.packing} %, {result.mode}")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("share of requests above")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--rate", type=float, default=90.0)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    results = []
    for packing in SHARES:
        for mode in ("overlap", "strict"):
            with tempfile.TemporaryDirectory() as folder:
                result = prove(packing, mode, args.changes, args.rate, args.seed, Path(folder), args.pause)
            results.append(result)
            during, without = result.split()
            print(
                f"{packing} % {mode}: {result.changes} changes, {result.held} held back, {result.reloads} reloads, "
                f"{len(result.samples)} requests, {len(result.failed)} failed; p99 {percentile(during, 99):.1f} ms "
                f"during ({len(during)}), {percentile(without, 99):.1f} ms without ({len(without)}); "
                f"p50 {percentile(during, 50):.1f} and {percentile(without, 50):.1f} ms",
                flush=True,
            )
            for sample in result.failed[:5]:
                print("  ", sample)
    if args.plot:
        plot(results, args.plot)
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
