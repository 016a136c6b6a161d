"""Lanes of GPUs: each holder's share of each step, colours of services, and what cannot be told apart left out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from app.console.boxes import assign_hue
from app.console.charts.lanes import MOST_LANES, ClosedTime, LaneFigure, draw_lanes
from app.console.charts.node import MOST_LINES, node_charts
from app.store.fleet.gpu_holdings import GpuTenure
from app.store.fleet.gpu_points import AilingPoint, GpuPoint

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
STEP = timedelta(minutes=15)
BEGINS = [NOON + STEP * at for at in range(4)]


def held(gpu: int, service: str, sm_percent: float, begins: int, ends: int, job: str = "") -> GpuTenure:
    moments = (NOON + timedelta(minutes=minutes) for minutes in (begins, ends))
    return GpuTenure(gpu, "shop", service, job, sm_percent, *moments)


def lanes(*tenures: GpuTenure, gpus: int = 1, closed: tuple[ClosedTime, ...] = ()) -> LaneFigure:
    return draw_lanes(list(range(gpus)), tenures, closed, BEGINS, STEP, NOON + 4 * STEP, UTC)


def heights(figure: LaneFigure, look: str) -> list[float]:
    return [
        float(height)
        for path in dict(figure.drawing.paths)[look].split("M")[1:]
        for height in re.findall(r"v-([\d.]+)", path)
    ]


def test_a_holder_fills_its_share_of_a_lane_for_as_long_as_it_was_there() -> None:
    figure = lanes(held(0, "a", 40, 0, 30), held(0, "", 20, 15, 22, job="train"))
    whole = heights(figure, "bar empty")[0]
    assert heights(figure, f"bar {assign_hue('shop/a')}") == [round(0.4 * whole, 1)] * 2
    assert abs(heights(figure, "bar j")[0] - 0.2 * 7 / 15 * whole) < 0.1
    assert [(row.name, row.is_job) for row in figure.rows] == [("shop/a", False), ("shop/train", True)]
    assert figure.rows[0].share == 0.2
    assert (
        figure.drawing.sentence
        == "Mean shares. GPU 0: shop/a 20\N{NARROW NO-BREAK SPACE}%, shop/train 2\N{NARROW NO-BREAK SPACE}%."
    )
    assert [line.name for line in figure.drawing.legend] == ["shop/a", "jobs"]


def test_a_hand_over_of_more_than_a_gpu_stays_inside_its_lane() -> None:
    figure = lanes(held(0, "a", 80, 0, 15), held(0, "b", 80, 0, 15))
    looks = {f"bar {assign_hue(f'shop/{name}')}" for name in "ab"}
    assert sum(heights(figure, look)[0] for look in looks) <= heights(figure, "bar empty")[0] + 0.1


def test_time_in_which_plans_kept_off_is_framed_of_one_gpu_or_of_all() -> None:
    late = NOON + 2 * STEP
    assert len(heights(lanes(gpus=3, closed=(ClosedTime(1, late),)), "line closed")) == 1
    figure = lanes(gpus=3, closed=(ClosedTime(-1, late),))
    assert len(heights(figure, "line closed")) == 3
    assert [line.look for line in figure.drawing.legend] == ["closed"]


def test_of_many_gpus_the_first_have_lanes_and_lines_show_the_highest_and_the_lowest() -> None:
    assert lanes(gpus=MOST_LANES + 3).more == 3
    points = [GpuPoint(NOON, gpu, 0.1 * gpu, 1, 100 + gpu, 40, 1400) for gpu in range(MOST_LINES + 1)]
    power = next(chart for chart in node_charts(BEGINS, STEP, points, []) if chart.id == "power")
    assert [(line.name, line.values[0]) for line in power.series] == [
        ("Highest of its GPUs", 100 + MOST_LINES), ("Lowest of its GPUs", 100),
    ]  # fmt: skip
    fewer = node_charts(BEGINS, STEP, points[:MOST_LINES], [])[2]
    assert len(fewer.series) == MOST_LINES


def test_rare_reasons_are_one_sum_and_a_healthy_node_has_nothing_to_draw() -> None:
    points = [GpuPoint(begin, 0, 0, 0, 0, 0, 0) for begin in BEGINS]
    (ailing,) = (chart for chart in node_charts(BEGINS, STEP, points, []) if chart.id == "ailing")
    assert [(line.name, list(line.values)) for line in ailing.series] == [("none", [0.0] * 4)]
    many = [AilingPoint(NOON, f"xid_{number}", 20 - number) for number in range(10)]
    (ailing,) = (chart for chart in node_charts(BEGINS, STEP, points, many) if chart.id == "ailing")
    assert [line.name for line in ailing.series][-2:] == ["xid 5", "others"]
    assert ailing.series[-1].values[0] == sum(20 - number for number in range(6, 10))
