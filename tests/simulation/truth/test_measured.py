"""Published tables give models their shape; the scale stays that of the fleet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulation.truth.fitting import KnownFigures
from simulation.truth.measured import HASGPU, PARVAGPU, ZEUS, MeasuredShapes, MeasurementsMissing
from simulation.truth.physics import Physics

KEY = ("resnet50", "fp16", "v100-16gb")
POINTS = {1: ((10, 40.0), (100, 8.0)), 8: ((10, 90.0), (100, 20.0))}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of the published form, with made figures."""
    for name in (HASGPU, *ZEUS, f"{PARVAGPU}/bert.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    rows = ["model,batch,sm_percent,quota_percent,latency_ms"]
    for batch in (1, 8):
        rows += [f"resnet50,{batch},{percent},100,{20 * batch * 10 / percent}" for percent in (10, 20, 50, 100)]
        rows += [f"resnet50,{batch},10,50,9999"]
    (tmp_path / HASGPU).write_text("\n".join(rows))
    parva = ["Mig instance,Batch size,Workload Number,Throughput,Latency"]
    parva += [f"{part},{batch},1,{50 * part},0" for part in (1, 7) for batch in (1, 8)]
    parva += ["1,64,1,0.0,0.0", "7,8,2,1.0,8"]
    (tmp_path / PARVAGPU / "bert.csv").write_text("\n".join(parva))
    for name in ZEUS:
        zeus = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
        zeus += [f"d,n,1,o,{limit},{100 * (240 / limit) ** 0.5},{limit - 5}" for limit in (120, 180, 240)]
        (tmp_path / name).write_text("\n".join(zeus))
    return tmp_path


def test_a_named_model_has_the_measured_shape_at_its_own_scale(data: Path) -> None:
    shapes = MeasuredShapes.read(data, seed=0)
    made = Physics(0, shapes.reshape, shapes.power_exponent)
    made.add_gpu("v100-16gb", 40.0, 300.0, 1530.0)
    made.add_model(KEY, KnownFigures(POINTS, 180.0))
    # As measured, a tenth of the SMs takes ten times as long, and eight requests eight times.
    assert made.alone_ms(KEY, 8, 10) / made.alone_ms(KEY, 8, 100) == pytest.approx(10, rel=1e-6)
    assert made.alone_ms(KEY, 8, 10) / made.alone_ms(KEY, 1, 10) == pytest.approx(8, rel=1e-6)
    product = 1.0
    for batch, curve in POINTS.items():
        for percent, ms in curve:
            product *= made.alone_ms(KEY, batch, percent) / ms
    assert product == pytest.approx(1.0)  # the scale: errors cancel out


def test_a_model_of_another_name_has_a_measured_shape_too(data: Path) -> None:
    found = MeasuredShapes.read(data, seed=3).reshape(("other", "int8", "h100"), KnownFigures(POINTS))
    assert found.points[8][0][1] / found.points[8][1][1] == pytest.approx(7.0, rel=1e-6)  # a seventh of bert's slices


def test_power_grows_by_the_exponent_that_limits_show(data: Path) -> None:
    assert 2.0 < MeasuredShapes.read(data, seed=0).power_exponent < 3.0


@pytest.mark.parametrize(
    ("name", "was", "now", "why"),
    [
        (HASGPU, "latency_ms", "latency", "a row has no latency_ms"),
        (HASGPU, "quota_percent", "quota", "a row has no quota_percent"),
        (HASGPU, "100,", "50,", "holds no time at the whole quota"),
        (f"{PARVAGPU}/bert.csv", "50,0", "fast,0", "Throughput 'fast' is no number"),
        (f"{PARVAGPU}/bert.csv", r",1,(\d+),0", r",2,\1,0", "holds no time of one process"),
        (ZEUS[1], "235", "nan", "average_power 'nan' is no number"),
    ],
)
def test_a_file_of_another_form_is_refused_by_name(data: Path, name: str, was: str, now: str, why: str) -> None:
    text = (data / name).read_text()
    (data / name).write_text(re.sub(was, now, text))
    with pytest.raises(MeasurementsMissing, match=why) as refused:
        MeasuredShapes.read(data, seed=0)
    assert name in str(refused.value)


@pytest.mark.parametrize("name", [HASGPU, PARVAGPU, ZEUS[0]])
def test_a_missing_file_is_named(data: Path, name: str) -> None:
    path = data / name
    for file in path.glob("*") if path.is_dir() else [path]:
        file.unlink()
    with pytest.raises(MeasurementsMissing, match=path.name):
        MeasuredShapes.read(data, seed=0)
