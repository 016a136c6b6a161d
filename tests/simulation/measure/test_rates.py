"""A load in a file: linear between rows, and every fault named with its line and what is allowed."""

from __future__ import annotations

import pytest

from simulation.measure.load_tables import LoadRefused
from simulation.measure.rates import make_shapes, read_rates

SERVICES = {"shop/a": 50.0, "shop/b": 10.0}
HEADER = "seconds,service,ratePerSecond\n"


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(LoadRefused) as refused:
        read_rates(text, "r.csv", SERVICES)
    return refused.value.faults


def test_rates_are_linear_between_rows_and_stay_beyond_them() -> None:
    curves = read_rates(HEADER + "60,shop/a,100\n120,shop/a,200\n120,shop/b,0\n", "r.csv", SERVICES)
    assert [curves["shop/a"].at(seconds) for seconds in (0, 60, 90, 120, 999)] == [100, 100, 150, 200, 200]
    shapes = make_shapes(curves, SERVICES)
    assert (shapes["shop/a"](90), shapes["shop/b"](0)) == (3.0, 0.0)


def test_columns_may_come_in_any_order_and_services_one_after_the_other() -> None:
    text = "\ufeffservice, ratePerSecond, seconds\nshop/b,1,0\nshop/b,2,60\nshop/a,3,0\n"
    assert read_rates(text, "r.csv", SERVICES)["shop/b"].at(30) == 1.5


def test_lines_may_end_as_on_any_system() -> None:
    for end in ("\r\n", "\r"):
        assert read_rates((HEADER + "0,shop/a,3\n").replace("\n", end), "r.csv", SERVICES)["shop/a"].at(0) == 3.0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "r.csv:1: no column seconds, service, ratePerSecond; the header must have the columns seconds,service,"),
        ("seconds,service\n0,shop/a\n", "r.csv:1: no column ratePerSecond; the header must have"),
        ("seconds,service,ratePerSecond,unit\n", "r.csv:1: column 'unit' is not expected there; the header must have"),
        ("seconds,seconds,service,ratePerSecond\n", "r.csv:1: column 'seconds' is not expected there"),
        (HEADER, "r.csv has no row below its header; give at least one"),
        (
            HEADER + "0,shop/c,1\n",
            "r.csv:2: service 'shop/c' is not declared in the manifests; declared: shop/a, s",
        ),
        (HEADER + "0,shop/a,-1\n", "r.csv:2: ratePerSecond '-1' is not allowed: a number from 0 to 100,000"),
        (HEADER + "0,shop/a,1\n9,shop/a,1e9\n", "r.csv:3: ratePerSecond '1e9' is not allowed: a number from 0 to 100,"),
        (
            HEADER + "2e9,shop/a,1\n",
            "r.csv:2: seconds '2e9' is not allowed: a number from 0 to 1,000,000,000, counted from the start",
        ),
        (HEADER + "0,shop/a,nan\n", "r.csv:2: ratePerSecond 'nan' is not allowed"),
        (HEADER + "0,shop/a,4_0\n", "r.csv:2: ratePerSecond '4_0' is not allowed: a number from 0 to 100,000"),
        (
            HEADER + "-5,shop/a,1\n",
            "r.csv:2: seconds '-5' is not allowed: a number from 0 to 1,000,000,000, counted from the start",
        ),
        (HEADER + "0,shop/a\n", "r.csv:2: the row has another number of fields than the header, which has 3"),
        (HEADER + "0,shop/a,1,2\n", "r.csv:2: the row has another number of fields than the header, which has 3"),
        (
            HEADER + "60,shop/a,1\n30,shop/a,2\n",
            "r.csv:3: seconds 30 of shop/a is not allowed: the seconds of a ",
        ),
        (HEADER + "60,shop/a,1\n60,shop/a,2\n", "must grow, here beyond 60, the value of its previous row"),
        (
            HEADER + '0,"shop/a,1\n',
            "r.csv:2: the row cannot be read: unexpected end of data; fields have commas between them, and each quote",
        ),
        (HEADER + "9" * 200 + "x,shop/a,1\n", f"r.csv:2: seconds '{'9' * 60}...' is not allowed"),
    ],
)
def test_a_fault_names_its_line_and_what_is_allowed(text: str, fault: str) -> None:
    (found,) = faults_of(text)
    assert fault in found


def test_every_fault_is_named_up_to_twenty() -> None:
    assert len(faults_of(HEADER + "0,shop/a,-1\n0,shop/x,1\n")) == 2
    assert len(faults_of(HEADER + "0,shop/x,1\n" * 50)) == 20
