"""What selectors can ask of an object."""

from __future__ import annotations

from app.manifests.model import Kind, Manifest
from app.manifests.selectable import MAX_ENTRIES, selector_entries


def test_names_labels_scalars_and_list_elements_can_be_selected() -> None:
    spec = {
        "model": "resnet50",
        "slo": {"latencyMs": 80, "percentile": 99.9},
        "gpuTypes": ["t4", "a100"],
        "preemptible": True,
    }
    entries = selector_entries(Manifest(Kind.SERVICE, "shop", "search", spec, {"team": "a"}))
    assert set(entries) == {
        "metadata.name=search",
        "metadata.tenant=shop",
        "label:team",
        "label:team=a",
        "spec.model=resnet50",
        "spec.slo.latencyMs=80",
        "spec.slo.percentile=99.9",
        "spec.gpuTypes=t4",
        "spec.gpuTypes=a100",
        "spec.preemptible=true",
    }


def test_tables_of_numbers_are_left_out() -> None:
    spec = {"model": "m", "latencyMs": {"1": {"10": 4.0}}, "memoryGib": {"1": 1.0}, "pressure": 0.5}
    entries = selector_entries(Manifest(Kind.PROFILE, "", "p", spec))
    assert entries == ["metadata.name=p", "spec.model=m", "spec.pressure=0.5"]


def test_the_tenants_of_a_model_cannot_be_asked_for() -> None:
    spec = {"variants": [{"name": "v", "accuracy": 1}], "tenants": ["rival"]}
    entries = selector_entries(Manifest(Kind.MODEL, "", "m", spec))
    assert entries == ["metadata.name=m", "spec.variants.name=v", "spec.variants.accuracy=1"]


def test_entries_are_bounded_in_number_and_length() -> None:
    spec = {"profiles": {f"t{n}": {"memoryGib": n, "sensitivity": n} for n in range(1000)}, "long": "x" * 1000}
    entries = selector_entries(Manifest(Kind.JOB, "lab", "j", spec))
    assert len(entries) == MAX_ENTRIES
    assert max(map(len, entries)) <= 200
