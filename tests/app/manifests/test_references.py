"""References lead to what is declared, and to nothing that a tenant may not know."""

from __future__ import annotations

import pytest

from app.manifests.model import Key, Kind, Manifest
from app.manifests.offline import DeclaredFiles
from app.manifests.references import (
    Broken,
    ProfileOf,
    Reference,
    Referrer,
    find_broken,
    find_clashes,
    find_missing,
    list_references,
)

MODEL = Manifest(
    Kind.MODEL, "", "resnet50", {"variants": [{"name": "fp16", "accuracy": 0.7}, {"name": "int8", "accuracy": 0.6}]}
)
SECRET = Manifest(Kind.MODEL, "", "secret", {"variants": [{"name": "v", "accuracy": 1}], "tenants": ["lab"]})
T4 = Manifest(Kind.GPU_TYPE, "", "t4", {})
PROFILE = Manifest(Kind.PROFILE, "", "p", {"model": "resnet50", "variant": "fp16", "gpuType": "t4"})


def service(tenant: str = "shop", **spec: object) -> Manifest:
    return Manifest(Kind.SERVICE, tenant, "x", {"model": "resnet50", **spec}, document="f#1")


def world(*manifests: Manifest) -> DeclaredFiles:
    return DeclaredFiles({manifest.key: manifest for manifest in (MODEL, SECRET, T4, *manifests)})


def test_each_kind_says_what_it_refers_to() -> None:
    model, t4 = MODEL.key, T4.key
    assert list_references(service(variants=["fp16"], gpuTypes=["t4"])) == [
        Reference(model, "", "spec.model"),
        Reference(model, "fp16", "spec.variants[0]"),
        Reference(t4, "", "spec.gpuTypes[0]"),
    ]
    assert list_references(PROFILE) == [
        Reference(model, "", "spec.model"),
        Reference(model, "fp16", "spec.variant"),
        Reference(t4, "", "spec.gpuType"),
    ]
    assert list_references(Manifest(Kind.NODE, "", "n", {"gpuType": "t4"})) == [Reference(t4, "", "spec.gpuType")]
    job = Manifest(Kind.JOB, "lab", "j", {"profiles": {"t4": {}}})
    assert list_references(job) == [Reference(t4, "", "spec.profiles.t4")]
    assert list_references(MODEL) == []


def test_what_is_there_is_no_fault() -> None:
    manifests = [service(variants=["fp16"], gpuTypes=["t4"]), service("lab", model="secret"), PROFILE]
    assert find_missing(manifests, world()) == []


def test_a_misspelt_model_is_reported_once_with_what_was_meant() -> None:
    (fault,) = find_missing([service(model="resnet5", variants=["fp16"])], world())
    assert (fault.document, fault.field) == ("f#1 Service shop/x", "spec.model")
    assert fault.message == 'there is no Model named "resnet5"'
    assert fault.suggestion == "resnet50"


def test_an_unknown_variant_names_those_there_are() -> None:
    (fault,) = find_missing([service(variants=["fp61"])], world())
    assert fault.field == "spec.variants[0]"
    assert fault.suggestion == "fp16"
    assert fault.allowed == "fp16, int8"


def test_a_model_of_others_reads_like_one_that_does_not_exist() -> None:
    (hidden,) = find_missing([service(model="secret")], world())
    (absent,) = find_missing([service(model="secrex")], DeclaredFiles({MODEL.key: MODEL, T4.key: T4}))
    assert str(hidden) == str(absent).replace("secrex", "secret")
    (near,) = find_missing([service(model="secre")], world())
    assert near.suggestion == ""


def test_two_profiles_of_the_same_thing_clash() -> None:
    again = Manifest(Kind.PROFILE, "", "q", PROFILE.spec)
    (fault,) = find_clashes([PROFILE, again], {})
    assert "Profile p already measures model resnet50, variant fp16, GPU type t4" in fault.message
    there = {ProfileOf("resnet50", "fp16", "t4"): "p"}
    assert find_clashes([PROFILE], there) == []
    assert len(find_clashes([again], there)) == 1


def test_a_model_that_changes_breaks_whoever_needed_what_is_gone() -> None:
    spec = {"variants": [{"name": "int8", "accuracy": 0.6}], "tenants": ["shop"]}
    shop, lab, profile = Key(Kind.SERVICE, "shop", "x"), Key(Kind.SERVICE, "lab", "y"), PROFILE.key
    referrers = [Referrer(shop), Referrer(shop, "fp16"), Referrer(lab), Referrer(profile), Referrer(profile, "int8")]
    assert find_broken(spec, referrers) == [  # type: ignore[arg-type]
        Broken(Referrer(shop, "fp16"), "variant fp16 is gone"),
        Broken(Referrer(lab), "its tenant is no longer admitted"),
    ]


@pytest.mark.slow
def test_ten_thousand_misspelt_references_are_told_without_comparing_all_of_them() -> None:
    nodes = [Manifest(Kind.NODE, "", f"n{n}", {"gpuType": f"typ-{n}"}) for n in range(10_000)]
    types = [Manifest(Kind.GPU_TYPE, "", f"type-{n}", {}) for n in range(2_000)]
    found = find_missing(nodes, world(*types))
    assert len(found) == 10_000
    assert found[0].suggestion == "type-0"
