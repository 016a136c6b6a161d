"""Every alert has its page, and every page says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.test_monitoring import MONITORING, rules

FOLDER = Path(__file__).parent.parent / "docs" / "runbooks"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    assert sorted(alert.name for alert in MONITORING.ALERTS) == PAGES


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_its_page(rule: dict[str, Any]) -> None:
    found = re.fullmatch(r".*/runbooks/(\w+)/", rule["annotations"]["runbook_url"])
    assert found and f"Gpuwright{found[1]}" == rule["alert"]
    assert (FOLDER / f"{found[1]}.md").exists()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_means_what_to_look_at_and_what_to_do(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert text.startswith(f"# Gpuwright{name}\n")
    parts = dict(re.findall(r"^## ([^\n]+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(parts) == ["What it means", "What to look at", "What to do"]
    assert "```console\n" in parts["What to look at"] and "gpuwright" in parts["What to look at"]
    assert len(re.findall(r"^- ", parts["What to do"], re.MULTILINE)) >= 2
