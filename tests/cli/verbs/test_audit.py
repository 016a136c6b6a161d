"""audit against a real server, and deletions by force."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run, service
from tests.support.reports import instance, report, send
from tests.support.server import RunningServer


@pytest.mark.slow
def test_audit_lists_who_changed_what_with_the_newest_last(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("seen-by-all", "watched"))
    world("delete", "service", "watched/seen-by-all", "--yes")
    lines = world("audit", "--for", "watched/seen-by-all").lines
    assert [line.split()[3] for line in lines] == ["ACTION", "create", "delete"]
    (entry,) = json.loads(world("audit", "--for", "watched/seen-by-all", "--verb", "create", "-o", "json").out)
    assert entry["after"]["spec"]["slo"]["latencyMs"] == 80
    assert world("audit", "--kind", "Nothing").err == "no entries found\n"


def test_audit_reads_on_until_it_has_as_many_entries_as_wanted(world: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.verbs.audit.LARGEST_PAGE", 2)
    world("apply", "-f", "-", stdin="".join(service(f"p{number}", "pages") for number in range(5)))
    assert len(world("audit", "--tenant", "pages").lines) == 6
    assert len(world("audit", "--tenant", "pages", "--limit", "3").lines) == 4


def test_a_forced_deletion_first_shows_what_it_takes_away(world: Run, server: RunningServer) -> None:
    copy = {"id": "search-1.1", "instance": "search-1", "gpu": 0, "stage": "ready"}
    message = report("node-1", instances=[instance("search-1")], copies=[copy])
    assert send(server, server.token("node", node="node-1"), message).status == 200
    refused = world("delete", "node", "node-1", "--yes")
    assert refused.code == 3
    assert "gpuwright drain node-1" in refused.err
    assert "node-1: search-1 of Service shop/search (ready)" in refused.err
    unasked = world("delete", "node", "node-1", "--force")
    assert (unasked.code, unasked.out) == (2, "")
    assert "node/node-1 takes with it one instance of shop/search" in unasked.err
    forced = world("delete", "node", "node-1", "--force", "--yes")
    assert forced.lines == ["node/node-1 deleted"]
