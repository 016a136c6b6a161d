"""Settings come from the environment, and a wrong one is named with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import Settings, SettingsError, read_environment


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_environment({}) == Settings()


def test_each_type_is_read_from_its_variable() -> None:
    found = read_environment(
        {
            "DATABASE_URL": "postgresql://db/x",
            "GPUWRIGHT_PORT": "0",
            "GPUWRIGHT_RATE_PER_SECOND": "2.5",
            "GPUWRIGHT_OPEN_METRICS": "true",
            "GPUWRIGHT_TLS_CERT": "a.pem",
            "GPUWRIGHT_TLS_KEY": "b.pem",
        }
    )
    assert (found.database_url, found.port, found.rate_per_second) == ("postgresql://db/x", 0, 2.5)
    assert (found.open_metrics, found.tls_cert, found.tls_key) == (True, Path("a.pem"), Path("b.pem"))


def test_the_command_line_wins_over_the_environment() -> None:
    assert read_environment({"GPUWRIGHT_PORT": "1"}, port=2, host=None).port == 2


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("GPUWRIGHT_PORT", "http", "GPUWRIGHT_PORT is 'http'; allowed: a whole number"),
        ("GPUWRIGHT_PORT", "65536", "port 65536 is outside 0..65535"),
        ("GPUWRIGHT_OPEN_METRICS", "maybe", "allowed: 0, 1, true or false"),
        ("GPUWRIGHT_POOL_SIZE", "0", "pool_size must be a finite number, over 0, not 0"),
        ("GPUWRIGHT_RATE_PER_SECOND", "nan", "rate_per_second must be a finite number, over 0, not nan"),
        ("GPUWRIGHT_BODY_SECONDS", "inf", "body_seconds must be a finite number, over 0, not inf"),
        (
            "GPUWRIGHT_TELEMETRY_RETENTION_DAYS",
            "-1",
            "telemetry_retention_days must be a finite number, over 0, not -1",
        ),
        ("GPUWRIGHT_SLOW_QUERY_MS", "-1", "slow_query_ms must be a finite number, 0 or more, not -1"),
        ("GPUWRIGHT_LOG_LEVEL", "LOUD", "log_level 'LOUD' is not one of DEBUG, INFO, WARNING, ERROR"),
        ("GPUWRIGHT_TLS_CERT", "a.pem", "TLS needs both a certificate and a key"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read_environment({variable: value})
    assert says in str(refused.value)
