"""A manifest that is put at an address need not repeat it, and may not contradict it."""

from __future__ import annotations

import pytest

from app.manifests.faults import ManifestFault
from app.manifests.model import Key, Kind, Manifest
from app.manifests.parser_process import complete_from_path
from app.manifests.parsing import ParserPool
from app.manifests.reader import OBJECT
from tests.app.manifests import bad

AT = Key(Kind.SERVICE, "shop", "search")
SPEC = "{spec: {model: m, slo: {latencyMs: 80, percentile: 98}, ratePerSecond: 900}}"


def put(text: str) -> tuple[list[Manifest], list[ManifestFault]]:
    found = ParserPool(seconds=20.0).parse(text.encode(), "yaml", OBJECT, "body", AT.tenant, AT)
    return found.manifests, found.faults


def test_what_the_path_says_may_be_left_out() -> None:
    (manifest,), faults = put(SPEC)
    assert faults == []
    assert manifest.key == AT


def test_labels_may_be_given_without_a_name() -> None:
    (manifest,), _ = put(SPEC.replace("{spec", "{metadata: {labels: {a: b}}, spec"))
    assert manifest.labels == {"a": "b"}


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ("{name: search, tenant: shop}", []),
        ("{name: other}", ["metadata.name"]),
        ("{name: other, tenant: lab}", ["metadata.name", "metadata.tenant"]),
    ],
)
def test_what_is_said_twice_must_agree(metadata: str, fields: list[str]) -> None:
    assert [fault.field for fault in put(bad.service().replace("{name: x}", metadata))[1]] == fields


def test_another_kind_is_not_put_there() -> None:
    assert "kind" in [fault.field for fault in put(bad.manifest("Tenant", "{}", "{name: search}"))[1]]


def test_two_manifests_do_not_fit_one_address() -> None:
    (fault,) = put(f"{SPEC}\n---\n{SPEC}")[1]
    assert "2 documents" in fault.message


def test_faults_are_told_as_everywhere() -> None:
    (fault,) = put(SPEC.replace("900", "0"))[1]
    assert (fault.document, fault.field) == ("body Service shop/search", "spec.ratePerSecond")


def test_nothing_is_named_where_nothing_is() -> None:
    assert complete_from_path([], AT)[1]
