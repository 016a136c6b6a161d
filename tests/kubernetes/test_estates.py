"""Drawn estates on a real API server and a real Prometheus: the bill is a plain sum, and L0 keeps every SLO kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.estates.drawing import KINDS, draw_estate
from tests.kubernetes.estates.running import prove
from tests.kubernetes.filling import RecordedCluster

pytestmark = pytest.mark.slow

MINUTES = 25 * 60  # a day, and an hour before it


@pytest.mark.parametrize(("kind", "gpus", "seed"), [("deployments", 40, 6), ("groups", 80, 5), ("shared", 40, 3)])
def test_what_is_paid_is_a_plain_sum_and_what_l0_leaves_keeps_every_slo(
    kind: str, gpus: int, seed: int, recorded_cluster: RecordedCluster, tmp_path: Path
) -> None:
    found = prove(draw_estate(kind, gpus, seed, MINUTES), recorded_cluster, tmp_path)
    assert found.faults == ()
    assert found.kept
    if kind == "shared":  # how they do beside others is not shown
        assert not found.fewer
    else:
        assert found.fewer and found.lost  # else there was nothing to prove


@pytest.mark.soak
@pytest.mark.parametrize("gpus", [40, 150])
@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_in_many_draws(kind: str, gpus: int, recorded_cluster: RecordedCluster, tmp_path: Path) -> None:
    fewer = 0
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = prove(draw_estate(kind, gpus, seed, MINUTES), recorded_cluster, folder)
        assert found.faults == (), f"draw {seed}"
        fewer += found.fewer
    assert fewer or kind == "shared"  # what shares GPUs stays
