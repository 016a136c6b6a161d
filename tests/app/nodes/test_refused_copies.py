"""Addresses of copies are examined in a bounded time, however many a report has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from agents.contract.reports import Copy, Report
from app.nodes.refused_copies import MOST_EXAMINED, drop_bad_addresses, find_address_fault

MANY = 1000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def report_at(address: Callable[[int], str]) -> Report:
    copies = tuple(Copy(f"copy-{n}", f"i-{n}", 0, "ready", address=address(n)) for n in range(MANY))
    return Report(node="node-1", incarnation=1, sequence=1, at=NOW, minute=NOW, boot_id="boot", copies=copies)


def test_case_17_addresses_at_ever_new_hosts_are_examined_up_to_a_bound() -> None:
    find_address_fault.cache_clear()
    stored, dropped = drop_bad_addresses(report_at(lambda n: f"10.1.{n // 250}.{n % 250 + 1}:8000"), ())
    assert find_address_fault.cache_info().misses == MOST_EXAMINED
    assert len(dropped) == MANY - MOST_EXAMINED
    assert [bool(copy.address) for copy in stored.copies] == [n < MOST_EXAMINED for n in range(MANY)]


def test_a_node_with_many_copies_at_its_only_host_is_examined_once_and_loses_none() -> None:
    find_address_fault.cache_clear()
    sent = report_at(lambda n: f"10.0.0.5:{8000 + n}")
    assert drop_bad_addresses(sent, ()) == (sent, ())
    assert find_address_fault.cache_info().misses == 1


def test_a_wrong_port_is_refused_also_at_a_host_that_may_be_used() -> None:
    _, dropped = drop_bad_addresses(report_at(lambda n: f"10.0.0.5:{70000 if n == 7 else 8000 + n}"), ())
    assert [part.what for part in dropped] == ["copy copy-7"]
