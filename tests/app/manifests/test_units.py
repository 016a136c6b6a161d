"""Where a number was stated with its unit, the fault names the number that was meant."""

from __future__ import annotations

import pytest

from app.manifests.reader import read
from app.manifests.validate import validate
from app.manifests.wording import number_meant

SERVICE = """\
apiVersion: gpuwright/v1
kind: Service
metadata: {name: x, tenant: shop}
spec: {model: m, slo: {latencyMs: %s, percentile: %s}, ratePerSecond: %s}
"""


def faults(latency: str = "80", percentile: str = "98", rate: str = "9") -> list[tuple[str, str]]:
    _, found = validate(read((SERVICE % (latency, percentile, rate)).encode(), "yaml"), offline=True)
    return [(fault.suggestion, fault.message) for fault in found]


@pytest.mark.parametrize(
    ("given", "meant"),
    [({"latency": "80ms"}, "80"), ({"latency": "1.5s"}, "1500"), ({"rate": "900/s"}, "900"), ({"rate": "9 rps"}, "9")],
)
def test_a_number_with_its_unit_is_answered_with_the_number(given: dict[str, str], meant: str) -> None:
    ((suggestion, message),) = faults(**given)
    assert suggestion == meant
    assert "quotes" not in message


def test_a_share_in_place_of_a_percentage_is_answered_with_the_percentage() -> None:
    assert [suggestion for suggestion, _ in faults(percentile="0.98")] == ["98"]
    assert [suggestion for suggestion, _ in faults(percentile="0.3")] == [""]


def test_quotes_are_named_only_around_a_number() -> None:
    ((suggestion, message),) = faults(latency='"80"')
    assert suggestion == "" and message.endswith("(a string: leave the quotes out)")
    ((suggestion, message),) = faults(latency="fast")
    assert suggestion == "" and "quotes" not in message


def test_a_unit_of_another_field_is_not_guessed() -> None:
    assert number_meant("spec.slo.latencyMs", "80 GiB") == ""
