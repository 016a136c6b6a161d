"""The benchmark of forecasts, on clients that are made here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.accuracy import forecast
from lab.data.missing_data import DataMissing


def write(folder: Path, clients: int, steps: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    for client in range(clients):
        rates = 50.0 * np.exp(
            np.sin(2 * np.pi * np.arange(steps) / forecast.STEPS_A_DAY) + random.normal(0, 0.1, steps)
        )
        rows = [f"{600 * step},{rate},1.5,Gamma,1,1" for step, rate in enumerate(rates)]
        (folder / f"chunk-{client}-trace.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.slow
def test_every_figure_stands_beside_its_baselines(tmp_path: Path) -> None:
    for name in forecast.SERIES:
        write(tmp_path / "servegen" / name, clients=2, steps=3 * forecast.STEPS_A_DAY)
    rows = {row.what: row for row in forecast.rows(tmp_path)}
    assert len(rows) == 13
    for name in forecast.SERIES:
        for label in forecast.LEADS:
            assert set(rows[f"pinball.{name}.{label}"].baselines) == {"last", "yesterday", "kalman"}
            assert 80 < rows[f"coverage.{name}.{label}"].ours < 97
            assert 0 < rows[f"forecast.{name}.{label}"].ours < 30


def test_a_baseline_uses_past_ratios_only() -> None:
    rates = np.concatenate([np.full(30, 10.0), np.full(30, 100.0)])
    last = forecast.scale_by_ratios(forecast.ago(rates, 1), rates, 1)
    assert last.upper[30] == pytest.approx(10.0)
    assert last.upper[31] == pytest.approx(100.0)  # one leap of thirty ratios is beyond the quantile


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"m-mid has no \*-trace\.csv"):
        forecast.rows(tmp_path)
