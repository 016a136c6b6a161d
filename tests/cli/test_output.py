"""What reaches the terminal: safe, aligned, in units a person reads."""

from __future__ import annotations

import pytest

from cli.output import OutputTable, age, format_json, format_yaml, gib, number, plain, shorten, span
from cli.views.columns import fastest


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("search", "search"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("a\r\nb", "a\\r\\nb"),
        ("a\u202eb", "a\\u202eb"),  # right-to-left override
        ("é", "é"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_what_could_steer_a_terminal_is_escaped(raw: str, shown: str) -> None:
    assert plain(raw) == shown


def test_json_and_yaml_are_ascii_for_any_label() -> None:
    for text in (format_json({"a": "\x1b\u202eé"}), format_yaml({"a": "\x1b\u202eé"})):
        assert text.isascii() and "\x1b" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (12000, "3h20m"),
     (36000, "10h"), (86400 * 2, "2d"), (86400 * 2 + 7200, "2d2h"), (86400 * 30, "30d"), (86400 * 800, "2y")],
)  # fmt: skip
def test_ages_read_like_kubectls(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_text_that_is_cut_shows_it() -> None:
    assert shorten("1500.0 were planned for", 23) == "1500.0 were planned for"
    assert shorten("1500.0 were planned for", 22) == "1500.0 were planned..."


def test_an_age_counts_from_an_rfc_3339_moment() -> None:
    assert age("1970-01-01T00:00:00.500Z", now=60.5) == "60s"
    assert age("", now=0) == "-"


def test_numbers_lose_their_tails_and_memory_gets_its_unit() -> None:
    shown = [number(80), number(80.0), number(0.7612345), number(12345), number(None), gib(16), gib(2048)]
    assert shown == ["80", "80", "0.7612", "12,345", "", "16 GiB", "2 TiB"]


def test_columns_line_up_also_when_a_later_page_is_wider(capsys: pytest.CaptureFixture[str]) -> None:
    table = OutputTable(["NAME", "AGE"])
    table.rows([["a", "5m"]])
    table.rows([["a-long-name", "5m"], ["名前", ""]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME   AGE",
        "a      5m",
        "a-long-name   5m",
        "名前          -",
    ]


def test_the_fastest_latency_of_a_profile_counts_uncertain_values_by_their_mean() -> None:
    assert fastest({"1": {"10": 9.0, "100": {"mean": 4.0, "q90": 5.0}}}) == "4 ms"
