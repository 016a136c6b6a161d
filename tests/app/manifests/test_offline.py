"""Files are a world by themselves, or refused with all that is wrong with any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.manifests.faults import ManifestsRefused
from app.manifests.model import Key, Kind
from app.manifests.offline import Input, load
from tests.app.manifests import bad
from tests.app.manifests.test_contract_example import EXAMPLE


def test_the_contracts_example_is_a_world(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(EXAMPLE)
    world = load([path])
    assert [manifest.kind for manifest in world.manifests.values()] == list(Kind)
    assert world.spec(Key(Kind.SERVICE, "shop", "search")) is not None


def test_a_world_may_be_spread_over_files() -> None:
    parts = EXAMPLE.split("---\n")
    world = load(Input(f"{n}.yaml", part.encode()) for n, part in enumerate(parts))
    assert len(world.manifests) == len(Kind)


def test_faults_of_every_file_come_together(tmp_path: Path) -> None:
    with pytest.raises(ManifestsRefused) as refused:
        load(
            [
                Input("a.yaml", bad.service(slo="").encode()),
                Input("b.yaml", b"a: ["),
                tmp_path / "missing.yaml",
                Input("c.yaml", b""),
            ]
        )
    places = [fault.document.split("#")[0].split(":")[0] for fault in refused.value.faults]
    assert sorted(places) == sorted(["a.yaml", "b.yaml", str(tmp_path / "missing.yaml"), "c.yaml"])


def test_references_must_lead_somewhere() -> None:
    with pytest.raises(ManifestsRefused) as refused:
        load([Input("a.yaml", "---\n".join([bad.service(), bad.node(), bad.job(), bad.profile()]).encode())])
    assert [fault.field for fault in refused.value.faults] == [
        "spec.model",
        "spec.gpuType",
        "spec.profiles.t4",
        "spec.model",
        "spec.gpuType",
    ]


def test_a_reference_into_nothing_is_named_beside_a_fault_elsewhere_and_one_into_what_is_at_fault_is_not() -> None:
    wrong = bad.gpu_type(pricePerHour="0").replace("{name: x}", "{name: t4}")
    with pytest.raises(ManifestsRefused) as refused:
        load([Input("a.yaml", "---\n".join([wrong, bad.node(), bad.service()]).encode())])
    assert [fault.field for fault in refused.value.faults] == ["spec.pricePerHour", "spec.model"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("service: shop/search", "service: shop/serch"), "no Service shop/serch"),
        (("node: node-1, gpu: 0, variant", "node: node-2, gpu: 0, variant"), "no Node node-2"),
        (("gpu: 0, variant: fp16", "gpu: 4, variant: fp16"), "no GPU 4"),
        (("variant: fp16, batch", "variant: fp8, batch"), "no variant fp8"),
        (("clockMhz: 1530", "clockMhz: 1000"), "1000 MHz is not a clock"),
        (("job: lab/finetune", "job: lab/none"), "no Job lab/none"),
    ],
)
def test_what_runs_now_must_run_on_something_declared(wrong: tuple[str, str], says: str) -> None:
    assert wrong[0] in EXAMPLE
    with pytest.raises(ManifestsRefused, match=says):
        load([Input("fleet.yaml", EXAMPLE.replace(*wrong).encode())])


def test_no_files_are_no_world() -> None:
    with pytest.raises(ManifestsRefused, match="no file"):
        load([])
