"""Which conditions somebody should look at."""

from __future__ import annotations

import pytest

from cli.verbs.describe import is_wrong


@pytest.mark.parametrize(
    ("kind", "status", "reason", "wrong"),
    [
        ("Planned", "True", "AllPlanned", False),
        ("Planned", "False", "Unserved", True),
        ("Degraded", "False", "AllPlanned", False),
        ("Degraded", "True", "Shedding", True),
        ("InventoryMismatch", "True", "Mismatch", True),
        ("Finished", "False", "NotYet", False),
        ("Finished", "False", "Failed", True),
        ("Placed", "False", "Finished", False),
        ("Placed", "False", "Queued", True),
    ],
)
def test_only_what_is_not_as_it_should_be_is_counted(kind: str, status: str, reason: str, wrong: bool) -> None:
    assert is_wrong({"type": kind, "status": status, "reason": reason}) is wrong
