"""The accuracy of latency curves, on tables written in the form of the published ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.accuracy import latency, latency_tables
from lab.bench.latency_plot import draw, errors_by_count
from lab.data.missing_data import DataMissing
from solvers.curves.measurement import Setting
from tests.solvers.curves.shapes import launch_bound, transfer_bound


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small table of each form, by two laws."""
    (tmp_path / "hasgpu").mkdir()
    lines = ["model,batch,sm_percent,quota_percent,latency_ms"]
    for batch in (1, 2, 4, 8):
        for share in range(10, 101, 10):
            setting = Setting(batch, share, 1400)
            lines.append(f"m,{batch},{share},100,{launch_bound(setting)}")
            lines.append(f"m,{batch},{share},50,{2 * launch_bound(setting)}")
    (tmp_path / latency_tables.HASGPU).write_text("\n".join(lines))
    (tmp_path / latency_tables.PARVAGPU).mkdir(parents=True)
    lines = ["Mig instance,Batch size,Workload Number,Throughput,Latency"]
    for part in (1, 2, 3, 4, 7):
        for batch in (1, 2, 4, 8, 16, 32):
            ms = transfer_bound(Setting(batch, 100 * part / 7, 1400))
            fits = batch < 32 or part > 1
            lines.append(f"{part},{batch},1,{1000 * batch / ms if fits else 0},{round(ms) / 1000 if fits else 0}")
            lines.append(f"{part},{batch},2,1,1")
    (tmp_path / latency_tables.PARVAGPU / "m.csv").write_text("\n".join(lines))
    return tmp_path


def test_tables_hold_what_was_measured_without_quota_alone_and_within_memory(data: Path) -> None:
    assert len(latency_tables.hasgpu(data)["m"]) == 40
    slices = latency_tables.parvagpu(data)["m"]
    assert len(slices) == 29
    setting = Setting(32, 100.0, latency_tables.CLOCK_MHZ)
    assert slices[setting] == pytest.approx(transfer_bound(setting))
    assert latency_tables.parvagpu(data, printed=True)["m"][setting] == round(transfer_bound(setting))


def test_a_folder_without_the_tables_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="v100_sm_quota_batch_latency"):
        latency.rows(tmp_path)
    with pytest.raises(DataMissing, match="prof_data"):
        latency_tables.parvagpu(tmp_path)


def test_a_table_of_other_columns_is_refused_by_the_column_that_it_lacks(data: Path) -> None:
    (data / latency_tables.HASGPU).write_text("model,batch\nm,1\n")
    with pytest.raises(DataMissing, match="has no column sm_percent; it needs model, batch, sm_percent"):
        latency_tables.hasgpu(data)
    (data / latency_tables.PARVAGPU / "m.csv").write_text("Batch size,Latency\n1,2\n")
    with pytest.raises(DataMissing, match="has no column Mig instance"):
        latency_tables.parvagpu(data)


@pytest.mark.slow
def test_curves_are_judged_on_what_was_not_measured_and_beat_the_baselines(data: Path) -> None:
    tables = latency_tables.parvagpu(data)
    by_count = latency.judge(tables, [8, 16], seeds=2)
    for count, judged in by_count.items():
        assert [len(part.below) for part in judged] == [29 - count] * 2
    row = latency.row("latency.parvagpu", "made", 16, by_count[16])
    assert row.what == "latency.parvagpu"
    assert row.ours < min(row.baselines.values())
    assert latency.row("latency.parvagpu", "made", 8, by_count[8]).what == "latency.parvagpu.8"


def test_a_seed_withholds_settings_from_the_choice(data: Path) -> None:
    table = latency_tables.hasgpu(data)["m"]
    first, second = (latency.chosen_settings(table, seed, 6) for seed in (0, 1))
    assert first != second
    assert latency.chosen_settings(table, 1, 6) == second


@pytest.mark.slow
def test_the_plot_has_a_panel_a_table(tmp_path: Path) -> None:
    rows = [
        {"what": "latency.hasgpu", "ours": 3.0, "baselines": {"nearest": 9.0}},
        {"what": "latency.hasgpu.8", "ours": 4.0, "baselines": {"nearest": 12.0}},
        {"what": "latency.parvagpu", "ours": 2.0, "baselines": {"nearest": 40.0}},
        {"what": "latency.parvagpu.printed", "ours": 3.0, "baselines": {}},
        {"what": "coverage.latency", "ours": 90.0, "baselines": {}},
    ]
    assert errors_by_count(rows, 16) == {
        "hasgpu": {"fitted curve": {16: 3.0, 8: 4.0}, "nearest": {16: 9.0, 8: 12.0}},
        "parvagpu": {"fitted curve": {16: 2.0}, "nearest": {16: 40.0}},
    }
    draw(rows, 16, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
