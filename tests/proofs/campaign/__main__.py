"""`python -m tests.proofs.campaign --faults 10000`: the whole product; `--mutate`: without one defence at a time."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.proofs.campaign.removals import REMOVALS
from tests.proofs.campaign.running import CampaignResult, run_campaign
from tests.support.postgres import postgres_of_the_wheel

FAULTS_A_SEED = 1000


def sentence(name: str, seed: int, result: CampaignResult, seconds: float) -> str:
    return (
        f"{name}, seed {seed}: {result.faults} faults of {len(result.kinds)} kinds, "
        f"{result.virtual_seconds / 3600:.2f} virtual hours, {result.checks} checks, "
        f"{len(result.violations)} violations, {seconds:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.proofs.campaign", description=__doc__)
    parser.add_argument("--faults", type=int, default=10_000, help="with --mutate: at most, for each defence")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutate", nargs="*", choices=sorted(REMOVALS), help="all defences, or these")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)  # every fault is logged by the product, thousands of times
    wrong = 0
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:

        def run(what: str, seed: int, faults: int, removal: str = "") -> CampaignResult:
            url, started = server.create(), time.perf_counter()
            result = run_campaign(url, Path(name) / f"{what}-{seed}", seed, faults, removal)
            server.drop(url)
            print(sentence(what, seed, result, time.perf_counter() - started), flush=True)
            return result

        if args.mutate is None:
            for number, start in enumerate(range(0, args.faults, FAULTS_A_SEED)):
                result = run("whole", args.seed + number, min(FAULTS_A_SEED, args.faults - start))
                for violation in result.violations:
                    print(f"  {violation}")
                wrong += len(result.violations)
        else:
            for removal in args.mutate or REMOVALS:
                result = run(f"without {removal}", args.seed, args.faults, removal)
                due = [found for found in result.violations if found.startswith(REMOVALS[removal].invariant)]
                print(f"  {due[0] if due else 'NOT NOTICED'}", flush=True)
                wrong += not due
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
