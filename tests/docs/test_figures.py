"""The figures that pages quote are those of the code."""

from __future__ import annotations

import re

import pytest

from agents.control.contact import CONTACT_SECONDS
from agents.gateway import overload
from agents.gateway.balances import FIRST_SLOTS
from agents.gateway.followers import SETTLED_SECONDS
from agents.gateway.requests import KEPT_SECONDS
from agents.http.loop import MOST_CONNECTIONS
from agents.keeper.failures import LONGEST_DELAY_SECONDS
from agents.policy.health.states import HealthSettings
from app.control.decide.least_change import FEW_HANDOVERS, MOST_SHARE
from app.control.decide.steady_jobs import RESTART_SECONDS, WORTH_SHARE
from app.control.domain.snapshot import SILENT_SECONDS
from app.control.domain.specs import RETRIES
from app.control.formulate.tenants import FILLED_SHARE
from app.control.formulate.tenants.budget import DEGRADED_PRIORITY_DIVISOR
from app.control.formulate.tenants.shares import BAND_SHARE
from app.control.jobs.order import CALM_RATIO
from app.control.rollout.rules import RolloutRules
from app.sessions import LINK_SECONDS, SESSION_SECONDS
from app.settings import Settings
from scripts.house.typed import DOCS
from solvers.forecast.settings import ForecastTuning

TURNED_AWAY_PERCENT = 100 * overload.TUNING.turned_away_share
SETTINGS, RULES, HEALTH, FORECAST = Settings(), RolloutRules({}), HealthSettings(), ForecastTuning()
WORDS = {1: "a", 2: "two", 3: "three", 4: "four", 5: "five", 9: "Nine", 10: "a tenth"}


def word(value: float) -> str:
    assert value == int(value)
    return WORDS[int(value)]


@pytest.mark.parametrize(
    ("page", "phrase"),
    [
        ("cycle", f"`GPUWRIGHT_LEASE_SECONDS` ({SETTINGS.lease_seconds:g})"),
        ("cycle", f"`silent` after {SILENT_SECONDS:g} s"),
        (
            "cycle",
            f"more than {FEW_HANDOVERS} instances and a {'quarter' if MOST_SHARE == 0.25 else MOST_SHARE} of the fleet",
        ),
        ("cycle", f"at least {word(RULES.canary_seconds / 60)} minute and {RULES.canary_requests} requests"),
        ("cycle", f"at most {word(RULES.canary_seconds * RULES.canary_patience / 60)} minutes"),
        ("console", f"no report for {SILENT_SECONDS:g} s"),
        ("console", f"lasts {SESSION_SECONDS / 3600:g} hours at most"),
        ("console", f"within {LINK_SECONDS} seconds"),
        ("forecast", f"observed for {FORECAST.observe_seconds / 60:g} minutes"),
        ("forecast", f"{100 * FORECAST.least_share:g} % of the declared one"),
        (
            "forecast",
            f"by {100 * FORECAST.sudden_band:g} % and {word(FORECAST.surprise)} deviations over up to two minutes",
        ),
        (
            "forecast",
            f"by {100 * FORECAST.steady_band:g} % and {word(FORECAST.steady_surprise)} deviations over five or ten",
        ),
        (
            "forecast",
            f"{100 * FORECAST.rise_share:g} % and {word(FORECAST.count_doubt)} deviations of the count of ten minutes",
        ),
        ("forecast", f"the trend over the look-ahead, {100 * FORECAST.most_trend:g} % at most"),
        ("forecast", f"once the plan is {100 * FORECAST.fall_band:g} % above that"),
        ("forecast", f"no sooner than {word(FORECAST.cooldown_seconds / 60)} minutes after it rose"),
        ("gateway-inside", f"So {FIRST_SLOTS} backends are prepared"),
        ("gateway", f"for {overload.TUNING.begins_seconds:g} s or {overload.TUNING.begins_slos:g} times the SLO"),
        ("gateway", f"at most {100 * overload.TUNING.admitted_share:g} % of these may be open"),
        (
            "gateway",
            f"when {'twice' if overload.TUNING.begins_times == 2 else overload.TUNING.begins_times} as many requests",
        ),
        (
            "gateway",
            f"{word(overload.TUNING.ends_seconds)} seconds in which at most {TURNED_AWAY_PERCENT:g} % was rejected",
        ),
        ("gateway-inside", f"for {KEPT_SECONDS / 60:g} minutes after its route is gone"),
        ("gateway", f"at least {'three' if SETTLED_SECONDS == 3 else SETTLED_SECONDS} seconds apart"),
        ("handovers", f"after {CONTACT_SECONDS:g} s without an answer"),
        ("handovers", f"retried after 1 s, 2 s, 4 s, up to {LONGEST_DELAY_SECONDS:g} s"),
        ("health", f"{HEALTH.hot_c:g} degrees or more; until below {HEALTH.cool_c:g}"),
        ("health", f"for {HEALTH.slow_seconds:g} s; until not for {HEALTH.clear_seconds:g} s"),
        ("health", f"after {HEALTH.back_off_seconds:g} s without its fault ({HEALTH.mps_back_off_seconds:g} s after"),
        ("jobs", f"from {word(CALM_RATIO)} times on, a job is not urgent"),
        ("jobs", f"it failed {word(RETRIES + 1)} times without progress"),
        ("jobs", f"more than {word(RESTART_SECONDS / 60)} minutes and {100 * WORTH_SHARE:g} % of the time left"),
        ("runtimes", f"Connections: {MOST_CONNECTIONS}"),
        ("deployment", f"`GPUWRIGHT_POOL_SIZE` ({SETTINGS.pool_size})"),
        ("reports", f"{word(10 * FILLED_SHARE)} tenths of the fleet's GPUs"),
        ("reports", f"while that is within {100 * BAND_SHARE:g} %"),
        ("reports", f"at {word(DEGRADED_PRIORITY_DIVISOR)} of their priority"),
        ("deployment", f"{SETTINGS.node_token_days:g} days (`GPUWRIGHT_NODE_TOKEN_DAYS`)"),
    ],
)
def test_a_page_quotes_the_figure_of_the_code(page: str, phrase: str) -> None:
    text = re.sub(r"\s+", " ", (DOCS / f"{page}.md").read_text())
    assert phrase in text
