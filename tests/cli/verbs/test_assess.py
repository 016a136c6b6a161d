"""`gpuwright assess`, as a person and as a machine call it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.assessment import cents_of
from cli.main import main
from tests.clusters import demo
from tests.clusters.made_up import deployment, node, pod_spec

PAGE = Path(__file__).parents[3] / "docs" / "assess.md"


def called(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["assess", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_page_shows_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["--demo"], capsys)
    assert (code, err) == (0, "")
    assert f"$ gpuwright assess --demo\n{out}```" in PAGE.read_text()


def test_a_machine_reads_the_same_sums(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["--demo", "-o", "json"], capsys)
    found = json.loads(out)
    assert code == 0
    assert found["nanoPerHour"] == sum(row["nanoPerHour"] for row in found["rows"]) == 166_070_084_000
    assert sum(row["gpus"] for row in found["rows"]) == sum(each["gpus"] for each in found["nodes"]) == 60
    assert {each["name"] for each in found["workloads"]} >= {"ranker", "llama-70b", "detector"}


def test_objects_as_kubectl_writes_them_are_assessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, prices = tmp_path / "objects.json", tmp_path / "prices.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(demo.items())}))
    prices.write_text(demo.PRICES)
    _, shown, _ = called(["--demo"], capsys)
    code, out, _ = called(["-f", str(file), "--prices", str(prices)], capsys)
    assert code == 0
    # the longest cell of a column may be the file's name
    assert [line.split() for line in out.splitlines()[:24]] == [line.split() for line in shown.splitlines()[:24]]


def test_what_is_unknown_is_said_once_for_all_nodes_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.json"
    nodes = [node(f"n{at}", 8, "NVIDIA-L4", "own") for at in range(5)]
    file.write_text(json.dumps([*nodes, *deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"])]))
    code, out, _ = called(["-f", str(file)], capsys)
    assert code == 0
    assert "for 40 GPUs on 5 nodes, without the price of 40 of them." in out
    assert (
        "- node n0, node n1, node n2 and 2 more: no price is known of own in us-east-1, on demand; give one in" in out
    )
    assert [line.split()[-2] for line in out.splitlines() if line.startswith("shop/")] == ["unknown"]


def test_a_cluster_without_gpus_is_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.json"
    file.write_text("[]")
    assert called(["-f", str(file)], capsys)[:2] == (0, "No node of this cluster shows GPUs.\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("[3]", "has no Kubernetes objects"), ('{"items": 3}', "has no Kubernetes objects")],
)
def test_a_file_of_something_else_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.json"
    file.write_text(text)
    code, out, err = called(["-f", str(file)], capsys)
    assert (code, out) == (2, "")
    assert message in err


def test_prices_with_faults_are_refused_with_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("prices: [{gpu: x}, {perHour: 1}]")
    code, _, err = called(["--demo", "--prices", str(prices)], capsys)
    assert code == 2
    assert "prices[0] needs either" in err
    assert "prices[1] names no nodes" in err


def test_a_price_in_a_file_comes_before_the_demos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nprices: [{region: us-east-1, perGpuHour: 2}, {purchase: spot, perHour: 1}]")
    _, out, _ = called(["--demo", "--prices", str(prices)], capsys)
    assert out.startswith("Paid now: 116.00 EUR an hour")


def test_two_clusters_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(["--demo", "--context", "production"], capsys)
    assert code == 2
    assert "give one of --demo, -f" in err


def test_cents_add_up_to_the_rounded_sum() -> None:
    third = 3_333_333_333
    assert list(cents_of([third, third, third])) == [333, 334, 333]
    assert sum(cents_of([15_000_000, 15_000_000])) == 3
