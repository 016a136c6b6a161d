"""Every fault of a manifest is named by document, field, value and what is allowed."""

from __future__ import annotations

import pytest

from app.manifests.faults import ManifestFault, ManifestsRefused
from app.manifests.reader import API, read
from app.manifests.validate import validate
from tests.app.manifests import bad


@pytest.mark.parametrize("text", bad.RIGHT)
def test_what_the_wrong_ones_vary_is_right(text: str) -> None:
    manifests, faults = validate(read(text.encode(), "yaml", API))
    assert len(manifests) == 1
    assert faults == []


@pytest.mark.parametrize("case", bad.FAULTY.values(), ids=bad.FAULTY)
def test_a_wrong_manifest_names_its_fault_in_one_readable_line(case: bad.Bad) -> None:
    manifests, faults = validate(read(case.text.encode(), "yaml", API, "fleet.yaml"))
    assert manifests == []
    told = [fault for fault in faults if fault.field == case.field]
    assert told, [str(fault) for fault in faults]
    assert any(case.says in str(fault) for fault in told), [str(fault) for fault in told]
    assert not case.meant or case.meant in {fault.suggestion for fault in told}
    assert all(fault.document.startswith("fleet.yaml#") for fault in faults)
    assert [str(fault) for fault in faults if not is_readable(fault)] == []


def is_readable(fault: ManifestFault) -> bool:
    line = str(fault)
    foreign = "pydantic" in line.lower() or "Input should" in line
    return line.isprintable() and len(line) < 500 and not foreign and ". " not in fault.message


@pytest.mark.parametrize(("data", "says"), bad.UNREADABLE.values(), ids=bad.UNREADABLE)
def test_a_text_that_cannot_be_read_is_refused_in_a_sentence(data: bytes, says: str) -> None:
    with pytest.raises(ManifestsRefused) as refused:
        read(data, "yaml", API, "fleet.yaml")
    assert says in str(refused.value)
    assert all(str(fault).isprintable() for fault in refused.value.faults)
    assert all(fault.document.startswith("fleet.yaml") for fault in refused.value.faults)


def test_every_fault_of_every_document_is_named_at_once() -> None:
    text = "---\n".join(case.text for case in bad.FAULTY.values() if case.text.startswith("apiVersion"))
    manifests, faults = validate(read(text.encode(), "yaml", API))
    assert manifests == []
    assert len({fault.document.split()[0] for fault in faults}) == text.count("---\n") + 1


def test_faults_of_one_document_do_not_hide_each_other() -> None:
    text = bad.profile(memoryGib="{2: -1}", latencyMs="{1: {10: 1, 20: 2}}", variant="[v]", colour="red")
    fields = {fault.field for fault in validate(read(text.encode(), "yaml"))[1]}
    assert fields == {
        "spec.memoryGib",  # batch 1 has none
        "spec.memoryGib.2",
        "spec.latencyMs.1",
        "spec.variant",
        "spec.colour",
    }


def test_an_object_that_is_declared_twice_is_named_with_its_first_place() -> None:
    text = bad.service() + "---\n" + bad.service()
    manifests, faults = validate(read(text.encode(), "yaml", source="fleet.yaml"))
    assert len(manifests) == 1
    assert [str(fault) for fault in faults] == [
        "fleet.yaml#2 Service default/x: metadata.name: Service default/x is already declared in fleet.yaml#1"
        " (allowed: each object once)"
    ]


def test_services_of_two_tenants_may_share_a_name() -> None:
    other = bad.service().replace("{name: x}", "{name: x, tenant: y}")
    assert validate(read(f"{bad.service()}---\n{other}".encode(), "yaml"))[1] == []


def test_what_get_shows_is_accepted_back_and_ignored() -> None:
    text = bad.service().replace(
        "{name: x}",
        "{name: x, uid: u, generation: 3, resourceVersion: 9, createdAt: c, updatedAt: d}",
    )
    (manifest,), faults = validate(read((text + "status: {conditions: []}\n").encode(), "yaml"))
    assert faults == []
    assert manifest.labels == {}


def test_the_thousand_and_first_fault_is_counted_only() -> None:
    data = b"- 1\n" * 5000
    faults = validate(read(data, "yaml"))[1]
    assert len(faults) == 1001
    assert faults[-1].message == "4,000 more faults were found"


def test_a_long_value_is_shortened_where_it_is_echoed() -> None:
    (fault,) = validate(read(bad.service(model="m" * 10_000).encode(), "yaml"))[1]
    assert len(str(fault)) < 400
    assert "10000 characters" in str(fault)
