"""`python -m tests.proofs.campaign --faults 10000`: the whole product; `--mutate`: without one defence at a time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.proofs.campaign.removals import REMOVALS
from tests.proofs.campaign.running import KINDS
from tests.proofs.campaign.states import STATES, possible_pairs
from tests.proofs.campaign.tasks import Task, run_tasks
from tests.support.postgres import postgres_of_the_wheel

FAULTS_A_SEED = 1000
MOST_NAMED = 12


def describe_pairs(pairs: Collection[tuple[str, str]]) -> Iterator[str]:
    """Yields how many of the possible pairs of a state and a fault were reached, and which were not."""
    possible = possible_pairs(KINDS)
    share = 100 * len(pairs) / len(possible)
    yield f"pairs of a state and a fault: {len(pairs)} of {len(possible)} possible ones reached, {share:.1f} %"
    for state, meaning in STATES.items():
        of_state = {kind for known, kind in possible if known == state}
        missing = sorted(of_state - {kind for known, kind in pairs if known == state})
        named = f"; not {', '.join(missing)}" if 0 < len(missing) <= MOST_NAMED else ""
        yield f"  {state} ({meaning}): {len(of_state) - len(missing)} of {len(of_state)}{named}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.proofs.campaign", description=__doc__)
    parser.add_argument("--faults", type=int, default=10_000, help="with --mutate: at most, for each defence")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mutate", nargs="*", choices=sorted(REMOVALS), help="all defences, or these")
    args = parser.parse_args()
    starts = range(0, args.faults, FAULTS_A_SEED)
    tasks = [Task(args.seed + at // FAULTS_A_SEED, min(FAULTS_A_SEED, args.faults - at)) for at in starts]
    if args.mutate is not None:
        tasks = [Task(args.seed, args.faults, removal) for removal in args.mutate or REMOVALS]
    wrong, pairs = 0, set[tuple[str, str]]()
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        for task, result in run_tasks(tasks, args.processes, server, Path(name)):
            if task.removal:
                invariant = REMOVALS[task.removal].invariant
                due = [found for found in result.violations if found.startswith(invariant)]
                print(f"  {due[0] if due else 'NOT NOTICED'}", flush=True)
                wrong += not due
                continue
            pairs |= result.pairs
            wrong += len(result.violations)
            print("".join(f"  {violation}\n" for violation in result.violations), end="", flush=True)
    if args.mutate is None:
        print("\n".join(describe_pairs(pairs)))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
