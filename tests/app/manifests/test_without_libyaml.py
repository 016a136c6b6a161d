"""A PyYAML without libyaml reads the same, only slower."""

from __future__ import annotations

import pytest

from app.manifests import yaml_text
from app.manifests.faults import ManifestsRefused
from app.manifests.reader import API, read
from tests.app.manifests import bad
from tests.app.manifests.test_contract_example import EXAMPLE


@pytest.fixture(autouse=True)
def _without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "CParser", None)


def test_the_contracts_example_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(EXAMPLE.encode(), "yaml")
    monkeypatch.undo()
    assert found == read(EXAMPLE.encode(), "yaml")


def test_what_cannot_be_read_is_refused_as_well() -> None:
    assert [name for name, (data, _) in bad.UNREADABLE.items() if not is_refused(data)] == []


def is_refused(data: bytes) -> bool:
    try:
        read(data, "yaml", API)
    except ManifestsRefused:
        return True
    return False
