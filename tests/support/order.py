"""The order of test files in a run of several at once: the longest first, so that no worker is alone at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Those that take more than about half a minute each, the longest first.
LONGEST = (
    "tests/app/campaigns/test_neighbours.py",
    "tests/app/campaigns/test_campaigns.py",
    "tests/docs/test_cpu_cores.py",
    "tests/simulation/test_node_loss.py",
    "tests/app/control/decide/test_failing_processes.py",
    "tests/app/console/test_browser.py",
    "tests/app/control/test_failed_places.py",
    "tests/app/console/test_actions.py",
    "tests/app/control/test_other_planners.py",
    "tests/simulation/test_spot.py",
    "tests/proofs/test_api_fuzz.py",
    "tests/app/control/solve/test_solver.py",
    "tests/agents/keeper/test_faults.py",
    "tests/cli/verbs/test_bench.py",
    "tests/app/control/decide/test_fallback.py",
    "tests/app/campaigns/test_kills.py",
    "tests/docs/test_own_servers.py",
    "tests/simulation/test_mixed_variants.py",
    "tests/app/control/test_elsewhere.py",
    "tests/proofs/test_console.py",
    "tests/app/console/test_charts.py",
    "tests/cli/verbs/test_bench_cycle.py",
    "tests/app/campaigns/test_clocks.py",
    "tests/simulation/test_drift.py",
    "tests/agents/devices/test_recorded.py",
    "tests/proofs/test_town.py",
    "tests/simulation/test_spike.py",
    "tests/proofs/test_campaign.py",
    "tests/proofs/test_returning.py",
    "tests/proofs/test_followed_agents.py",
    "tests/simulation/test_wave.py",
    "tests/cli/verbs/test_size.py",
    "tests/proofs/test_ledger.py",
    "tests/proofs/test_offline_batches.py",
)
PLACES = {name: place for place, name in enumerate(LONGEST)}


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sorts files, not the tests of a file."""
    items.sort(key=lambda item: PLACES.get(item.path.relative_to(ROOT).as_posix(), len(PLACES)))


def import_from_another_place(folders: Sequence[str], share: float) -> None:
    """Imports the test files of these folders in their order, beginning after this share of them.

    Where no bytecode is kept, each worker compiles other files than the rest do at that moment, and finds theirs later.
    A file that cannot be imported is reported when it is collected.
    """
    files = sorted(file for folder in folders for file in Path(folder).resolve().rglob("test_*.py"))
    first = int(len(files) * share)
    for file in (*files[first:], *files[:first]):
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
