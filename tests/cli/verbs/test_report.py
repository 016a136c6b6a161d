"""`gpuwright report` over a small history: for reading, for scripts, for spreadsheets and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from cli.talk.contexts import remember
from cli.verbs.report import heading
from tests.cli.conftest import Run
from tests.support import history
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server

NOVEMBER = ("--from", "2026-11-01", "--to", "2026-12-01")


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    """The one that `run` talks to."""
    url = postgres.create()
    with running_server(url) as running:
        history.write(url)
        yield running
    postgres.drop(url)


def test_a_table_names_who_paid_what_and_ends_with_the_total(run: Run) -> None:
    done = run("report", "cost", "--by", "tenant,service", *NOVEMBER)
    assert done.code == 0
    assert done.lines[0].split("   ")[-1].strip() == "ENERGY KWH"
    assert "TOTAL COST EUR   HELD COST EUR" in done.lines[0]
    search = next(line for line in done.lines if "search" in line)
    assert search.split()[:2] == ["shop", "search"]
    assert "7.80" in search
    assert re.search(r" 19\.20 +15\.00 ", done.lines[-1])
    assert done.lines[-1].startswith("total")


def test_savings_show_what_was_held_beside_the_plan(run: Run) -> None:
    done = run("report", "savings", *NOVEMBER)
    assert re.search(r"BASELINE +COST EUR +HELD COST EUR ", done.lines[0])
    assert [line.split()[1:3] for line in done.lines[1:]] == [["8.00", "9.00"]] * 3


def test_days_are_shown_as_dates_of_the_zone(run: Run) -> None:
    done = run("report", "cost", "--by", "day", *NOVEMBER, "--zone", "Europe/Berlin")
    assert [line.split()[0] for line in done.lines[1:]] == ["2026-11-01", "2026-11-20", "2026-11-21", "total"]


def test_json_and_csv_are_the_servers(run: Run, tmp_path: Path) -> None:
    told = json.loads(run("report", "cost", *NOVEMBER, "-o", "json").out)
    assert told["total"]["totalCost"] == 19.2
    assert run("report", "cost", *NOVEMBER, "-o", "csv", "--out", str(tmp_path / "cost.csv")).code == 0
    assert (
        (tmp_path / "cost.csv")
        .read_bytes()
        .startswith(b"tenant,service,job,kind,gpu_hours,cost,held_cost,energy_kwh\r\n")
    )
    assert run("report", "cost", *NOVEMBER, "-o", "focus").out.startswith("BilledCost,BillingAccountId,")


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_reported(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "none" / "cost.svg"
    ways = [["-o", output, "--out", str(file)] for output in ("csv", "json", "parquet")] + [["--chart", str(file)]]
    for way in ways:
        done = run("report", "cost", *NOVEMBER, *way)
        assert done.code == 2
        assert re.fullmatch(rf"gpuwright: cannot write {file}: .*no such file or directory\n", done.err, re.IGNORECASE)


def test_parquet_holds_money_as_decimals(run: Run, tmp_path: Path) -> None:
    from pyarrow import parquet

    file = tmp_path / "cost.parquet"
    assert run("report", "cost", "--by", "service,day", *NOVEMBER, "-o", "parquet", "--out", str(file)).code == 0
    table = parquet.read_table(file)
    assert sum(table.column("totalCost").to_pylist()) == Decimal("19.2")
    assert table.column("start").to_pylist()[0].startswith("2026-11-20")


@pytest.mark.slow
@pytest.mark.parametrize(("by", "suffix"), [("service,day", ".svg"), ("service", ".png")])
def test_a_chart_is_drawn(run: Run, tmp_path: Path, by: str, suffix: str) -> None:
    file = tmp_path / f"cost{suffix}"
    assert run("report", "cost", "--by", by, *NOVEMBER, "--chart", str(file)).code == 0
    drawn = file.read_bytes()
    assert b"shop" in drawn or suffix == ".png"
    assert len(drawn) > 3000


def test_reports_are_listed_with_what_they_are_by(run: Run) -> None:
    done = run("report")
    assert {"cost", "slo", "energy", "savings", "usage"} <= {line.split(":")[0] for line in done.lines}
    assert max(map(len, done.lines)) <= 120
    assert "gpuType" in run("report", "cost", "--by", "nothing").err


def test_a_contexts_tenant_narrows_what_a_tenant_has_and_leaves_reports_of_the_fleet_whole(
    run: Run, server: RunningServer
) -> None:
    remember("lab", {"server": server.url, "tenant": "lab"}, select=True)
    cost = run("report", "cost", "--by", "service", *NOVEMBER)
    assert {line.split()[0] for line in cost.lines[1:]} == {"lab"}
    fleet = run("report", "utilisation", *NOVEMBER)
    assert (fleet.code, fleet.err) == (0, "")
    assert len(fleet.lines) > 1
    asked = run("report", "utilisation", "--tenant", "lab", *NOVEMBER)
    assert asked.code != 0
    assert "leave out tenant" in asked.err


def test_figures_in_names_become_words_of_a_heading() -> None:
    assert heading("costPer1000Requests", "EUR") == "COST PER 1000 REQUESTS EUR"
    assert heading("gpuHours", "EUR") == "GPU HOURS"


def test_a_fault_is_reported_with_what_is_allowed(run: Run, tmp_path: Path) -> None:
    assert "did you mean service?" in run("report", "cost", "--by", "servise").err
    assert "use --out FILE" in run("report", "cost", "-o", "parquet").err
    assert "allowed are .png and .svg" in run("report", "cost", "--chart", "cost.pdf").err
    empty = run("report", "cost", "--from", "2020-01-01", "--to", "2020-02-01")
    assert (empty.code, empty.out) == (0, "")
    assert empty.err == (
        "nothing from 2020-01-01T00:00:00Z to 2020-02-01T00:00:00Z; "
        "the cost of a quarter-hour comes some minutes after its end\n"
    )
    empty = run("report", "savings", "--from", "2020-01-01", "--to", "2020-02-01")
    assert empty.err.endswith("; the savings of an hour come some minutes after its end\n")
    undrawn = run("report", "cost", "--from", "2020-01-01", "--to", "2020-02-01", "--chart", str(tmp_path / "a.svg"))
    assert (undrawn.code, undrawn.err) == (
        2,
        "gpuwright: the report is empty for that time, so there is nothing to draw\n",
    )
