"""People read which currency a server's money is in; the server says it once, in a header."""

from __future__ import annotations

import json

import pytest

from cli.currency import head_amounts, name_currency, read_currency
from tests.cli.conftest import Run
from tests.support.server import RunningServer


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("GPUs cost 8 -> 7.5 an hour, at least 7 by proof", "GPUs cost 8 -> 7.5 EUR an hour, at least 7 by proof"),
        ("costs 0.25 more an hour", "costs 0.25 EUR more an hour"),
        ("cost 2.00/h   held 3.00/h", "cost 2.00 EUR/h   held 3.00/h"),
        ("XID 79", "XID 79"),
        ("all its work in an hour, 900 requests a second", "all its work in an hour, 900 requests a second"),
    ],
)
def test_the_first_amount_of_an_hour_has_its_currency(text: str, named: str) -> None:
    assert name_currency(text, "EUR") == named
    assert name_currency(text, "") == text  # of a server that names none


def test_a_column_of_amounts_has_its_currency_in_its_heading() -> None:
    assert [head_amounts(text, "EUR") for text in ("COST/H", "BUDGET")] == ["COST EUR/H", "BUDGET EUR"]
    assert head_amounts("COST/H", "") == "COST/H"


@pytest.mark.parametrize("header", ["", "euro", "EU", "\x1b[2", "EUR "])
def test_only_a_code_is_a_currency(header: str) -> None:
    assert read_currency(header) == ""


def test_tables_of_prices_name_the_currency_of_the_server_and_json_does_not(run: Run, server: RunningServer) -> None:
    done = run("apply", "-f", "-", stdin=GPU_TYPE)
    assert done.code == 0, done.err
    assert "PRICE EUR/H" in run("get", "gputypes").lines[0]
    assert "EUR" not in run("get", "gputypes", "-o", "json").out
    assert "PRICE EUR/H" not in run("get", "gputypes", "--no-headers").out
    assert server.request("GET", "/api/v1/overview").headers["x-currency"] == "EUR"


GPU_TYPE = json.dumps(
    {
        "apiVersion": "gpuwright/v1", "kind": "GpuType", "metadata": {"name": "v100-16gb"},
        "spec": {
            "memoryGib": 16, "smCount": 80, "pricePerHour": 1.2, "idleW": 40, "maxW": 300, "clocksMhz": [600, 1530]
        },
    }
)  # fmt: skip
