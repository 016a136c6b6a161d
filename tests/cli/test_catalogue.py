"""The catalogue of GPU types: what it holds, shows and declares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.contract.gpus import read_sheets
from app.manifests.reader import read
from app.manifests.validate import validate
from cli import exits
from cli.catalogue import manifest
from cli.main import main
from cli.talk.client import FILES_MEDIA
from tests.support.server import RunningServer

OF_THE_PAPERS = {
    "v100-sxm2-32gb", "t4-16gb", "a100-pcie-40gb", "a100-sxm4-40gb", "a30-24gb", "rtx-4090-24gb",
    "rtx-2080-ti-11gb", "rtx-2060-6gb", "rtx-2060-super-8gb",
}  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], cli_config: Path) -> Run:
    def command(*words: str) -> tuple[int, str, str]:
        code = main(["catalogue", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.fixture
def connected(run: Run, server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
    monkeypatch.setenv("GPUWRIGHT_TOKEN", server.admin_token)
    return run


def price_of(server: RunningServer, name: str) -> float:
    return float(server.request("GET", f"/api/v1/gputypes/{name}").json["spec"]["pricePerHour"])


def test_it_reaches_from_p100_to_b200_and_holds_every_gpu_of_the_papers() -> None:
    names = set(read_sheets())
    assert len(names) >= 24
    assert {"p100-pcie-16gb", "b200-sxm-180gb"} | OF_THE_PAPERS <= names


def test_every_sheet_is_a_valid_gpu_type() -> None:
    documents = read(
        json.dumps([manifest(sheet) for sheet in read_sheets().values()]).encode(), "json", source="catalogue"
    )
    manifests, faults = validate(documents)
    assert faults == []
    assert [each.name for each in manifests] == list(read_sheets())


def test_every_sheet_is_plausible_and_names_its_source(subtests: pytest.Subtests) -> None:
    for sheet in read_sheets().values():
        with subtests.test(sheet.name):
            assert sheet.name.endswith(f"-{sheet.memory_gib}gb")
            assert 0 < sheet.idle_w < sheet.max_w / 4
            assert sorted(set(sheet.clocks_mhz)) == list(sheet.clocks_mhz)
            assert 10 <= sheet.sm_count <= 200
            assert 2016 <= sheet.year <= 2026
            assert "data sheet" in sheet.source or "specification" in sheet.source or "brief" in sheet.source


def test_the_list_has_a_line_a_type(run: Run) -> None:
    code, out, _ = run("list")
    assert code == exits.OK
    assert len(out.splitlines()) == len(read_sheets().values()) + 1
    assert run("list", "-o", "name")[1].split() == list(read_sheets())


def test_show_says_that_the_price_is_an_example_and_idle_power_typical(run: Run) -> None:
    out = run("show", "l4-24gb")[1]
    assert "an example" in out
    assert "typically" in out
    assert "data sheet" in out


def test_show_as_yaml_is_a_manifest_a_document_a_type(run: Run) -> None:
    out = run("show", "l4-24gb", "t4-16gb", "-o", "yaml", "--price", "t4-16gb=0.4")[1]
    manifests, faults = validate(read(out.encode(), "yaml", source="stdout"))
    assert faults == []
    assert [(each.name, each.spec["pricePerHour"]) for each in manifests] == [
        ("l4-24gb", 0.8),
        ("t4-16gb", 0.4),
    ]


def test_a_name_it_lacks_is_refused_with_the_nearest(run: Run) -> None:
    code, _, err = run("show", "v100")
    assert code == exits.BAD_INPUT
    assert "'v100'" in err
    assert "v100-sxm2-32gb" in err


@pytest.mark.parametrize(
    "price", ["l4-24gb", "l4-24gb=", "l4-24gb=0", "l4-24gb=-1", "l4-24gb=nan", "l4-24gb=4_0", "=1", "l4-24gb=inf"]
)
def test_a_price_that_is_none_is_refused(run: Run, price: str) -> None:
    code, _, err = run("show", "l4-24gb", "--price", price)
    assert code == exits.BAD_INPUT
    assert "NAME=PRICE" in err


def test_a_price_of_a_type_not_chosen_is_refused(run: Run) -> None:
    code, _, err = run("show", "l4-24gb", "--price", "t4-16gb=1")
    assert code == exits.BAD_INPUT
    assert "t4-16gb" in err


def test_names_and_all_exclude_each_other(run: Run) -> None:
    assert run("show")[0] == exits.BAD_INPUT
    assert run("show", "--all", "l4-24gb")[0] == exits.BAD_INPUT


@pytest.mark.slow
def test_apply_declares_the_whole_catalogue_and_does_so_once(connected: Run) -> None:
    code, out, err = connected("apply", "--all")
    assert code == exits.OK, err
    assert out.count(" created") == len(read_sheets().values())
    assert "the prices are examples" in err
    again = connected("apply", "--all")[1]
    assert again.count(" unchanged") == len(read_sheets().values())


@pytest.mark.slow
def test_apply_keeps_a_price_that_was_set(connected: Run, server: RunningServer) -> None:
    connected("apply", "l4-24gb", "--price", "l4-24gb=0.71")
    connected("apply", "l4-24gb")
    assert price_of(server, "l4-24gb") == 0.71
    connected("apply", "l4-24gb", "--price", "l4-24gb=0.65")
    assert price_of(server, "l4-24gb") == 0.65


@pytest.mark.slow
def test_apply_keeps_links_that_were_declared(connected: Run, server: RunningServer) -> None:
    links = {"nvlinkGroup": 4, "nvlinkGbit": 1200, "pcieGbit": 100, "networkGbit": 50, "networkPricePerGib": 0.01}
    declared = manifest(read_sheets()["a100-sxm4-40gb"])
    assert set(links) & set(declared["spec"]) == {"nvlinkGbit", "pcieGbit"}
    body = {"files": [{"name": "own", "text": json.dumps(declared | {"spec": declared["spec"] | links})}]}
    applied = server.request("POST", "/api/v1/apply", body, headers={"Content-Type": FILES_MEDIA})
    assert applied.status == 200
    assert connected("apply", "a100-sxm4-40gb")[0] == exits.OK
    spec = server.request("GET", "/api/v1/gputypes/a100-sxm4-40gb").json["spec"]
    assert {name: spec.get(name) for name in links} == links


def test_a_dry_run_declares_nothing(connected: Run, server: RunningServer) -> None:
    connected("apply", "a10-24gb", "--price", "a10-24gb=5")
    assert "dry run" in connected("apply", "a10-24gb", "--price", "a10-24gb=9", "--dry-run")[1]
    assert price_of(server, "a10-24gb") == 5
