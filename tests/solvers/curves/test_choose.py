"""Which setting is measured next."""

from __future__ import annotations

from itertools import product

import pytest

from solvers.curves import Measurement, Setting, fit, next_setting

SETTINGS = [Setting(batch, share, 1400) for batch, share in product((1, 2, 4, 8, 16, 32), (10, 20, 30, 50, 70, 100))]


def latency(setting: Setting) -> float:
    return 4.0 + 40.0 * setting.batch / setting.sm_percent


def measured(setting: Setting) -> Measurement:
    return Measurement(setting.batch, setting.sm_percent, setting.clock_mhz, latency(setting), 0.1, 30)


def campaign(most: int = 16) -> list[Measurement]:
    done: list[Measurement] = []
    while (setting := next_setting(done, SETTINGS, most=most)) is not None:
        done.append(measured(setting))
    return done


def test_a_campaign_ends_within_its_measurements_and_repeats_none() -> None:
    done = campaign()
    assert 8 <= len(done) <= 16
    assert len({measurement.setting for measurement in done}) == len(done)


def test_the_same_measurements_choose_the_same_setting() -> None:
    assert campaign() == campaign()


def test_a_plain_curve_is_known_within_the_stated_accuracy() -> None:
    curve = fit(campaign(), 1400)
    errors = [abs(curve.mean_ms(s.batch, s.sm_percent, s.clock_mhz) / latency(s) - 1) for s in SETTINGS]
    assert sum(errors) / len(errors) < 0.04


def test_nothing_is_left_to_measure_where_all_is_measured() -> None:
    assert next_setting([measured(setting) for setting in SETTINGS], SETTINGS) is None


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sm_percent 120 is outside"):
        Setting(1, 120, 1400)
    with pytest.raises(ValueError, match="latency_ms 0 is not"):
        Measurement(1, 10, 1400, 0.0, 0.1, 3)
    with pytest.raises(ValueError, match="1 measurements are too few"):
        fit([measured(SETTINGS[0])], 1400)
