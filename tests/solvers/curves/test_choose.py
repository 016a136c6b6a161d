"""Which setting is measured next."""

from __future__ import annotations

import pytest

from solvers.curves.choose import next_setting
from solvers.curves.curve import fit
from solvers.curves.measurement import Measurement, Setting
from tests.solvers.curves.shapes import CLOCK_MHZ, LAWS, SETTINGS, compute_bound, launch_bound, measured
from tests.solvers.curves.shapes import campaign as campaign_of

pytestmark = pytest.mark.slow


def campaign() -> list[Measurement]:
    return campaign_of(launch_bound)


def test_a_campaign_ends_with_its_last_measurement_and_repeats_none() -> None:
    done = campaign()
    assert len(done) == 16
    assert len({measurement.setting for measurement in done}) == 16


@pytest.mark.parametrize("law", LAWS)
def test_a_campaign_ends_early_where_the_stated_accuracy_is_reached(law: str) -> None:
    done = campaign_of(LAWS[law], accuracy=0.15)
    assert len(done) < 16


def test_the_same_measurements_choose_the_same_setting_in_any_order_of_settings() -> None:
    done = campaign()
    for count in range(16):
        assert next_setting(done[:count], SETTINGS[::-1], 0.0, 16) == done[count].setting


def test_nothing_is_left_to_measure_where_all_is_measured() -> None:
    few = SETTINGS[:5]
    assert next_setting([measured(setting, compute_bound) for setting in few], few, 0.04, 16) is None


def test_a_setting_that_cannot_be_measured_is_left_out_and_the_others_go_on() -> None:
    done = campaign()[:4]
    first = next_setting(done, SETTINGS, 0.0, 16)
    others = [setting for setting in SETTINGS if setting != first]
    assert next_setting(done, others, 0.0, 16) not in (None, first)


def test_both_ends_of_the_curve_are_measured_first() -> None:
    first, second = (measurement.setting for measurement in campaign()[:2])
    assert first == Setting(32, 10, CLOCK_MHZ)
    assert second == Setting(1, 100, CLOCK_MHZ)


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sm_percent 120 is outside"):
        Setting(1, 120, 1400)
    with pytest.raises(ValueError, match="latency_ms 0 is not"):
        Measurement(1, 10, 1400, 0.0, 0.1, 3)
    with pytest.raises(ValueError, match="1 measurements are too few"):
        fit([measured(SETTINGS[0], compute_bound)], 1400)
    with pytest.raises(ValueError, match="method spline is not one of"):
        fit(campaign(), 1400, "spline")
