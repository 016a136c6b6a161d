"""`gpuwright assess`, as a person and as a machine call it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from cli.estate.money import cents_of
from cli.main import main
from clusters.promises import read_annotated
from tests.clusters import demo
from tests.clusters.made_up import deployment, node, pod_spec

PAGE = Path(__file__).parents[3] / "docs" / "assess.md"
ESTIMATES = PAGE.with_name("estimates.md")


def called(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["assess", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_the_page_shows_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["--demo"], capsys)
    assert (code, err) == (0, "")
    assert f"$ gpuwright assess --demo\n{out}```" in PAGE.read_text()


@pytest.mark.slow
def test_a_machine_reads_the_same_sums(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["--demo", "-o", "json"], capsys)
    found = json.loads(out)
    assert code == 0
    assert found["nanoPerHour"] == sum(row["nanoPerHour"] for row in found["rows"]) == 166_070_084_000
    assert sum(row["gpus"] for row in found["rows"]) == sum(each["gpus"] for each in found["nodes"]) == 60
    assert {each["name"] for each in found["workloads"]} >= {"ranker", "llama-70b", "detector"}


@pytest.mark.slow
def test_the_page_shows_what_the_demos_backtest_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["--demo", "--backtest", "7d"], capsys)
    assert (code, err) == (0, "")
    part = out[out.index("Backtest of ") : out.index("\nWhat is not known:")]
    assert f"$ gpuwright assess --demo --backtest 7d\n...\n{part}```" in ESTIMATES.read_text()


@pytest.mark.slow
def test_a_machine_reads_the_backtest_hour_by_hour(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["--demo", "--backtest", "2d", "-o", "json"], capsys)
    hours = json.loads(out)["hours"]
    assert (code, len(hours)) == (0, 48)
    assert hours[0]["start"] == "2025-11-15T00:00:00Z"
    assert all(hour["paid"] == 166.070084 for hour in hours)
    assert all(hour["paid"] - hour["planned"] <= hour["upperLimit"] and hour["attainment"] == 1 for hour in hours)


def test_a_backtest_without_loads_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["-f", "nothing-is-read-of-it", "--backtest", "7d"], capsys)
    assert (code, out) == (2, "")
    assert "--backtest is of loads that were measured: give --prometheus, or --demo" in err


def test_a_backtest_of_less_than_an_hour_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["--demo", "--backtest", "5m"], capsys)
    assert (code, out) == (2, "")
    assert "--backtest is shorter than an hour" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "2d"], "--from is for --prometheus, which is missing"),
        (["--backtest", "2d", "-o", "yaml"], "a backtest is not in -o yaml"),
        (
            ["--prometheus", "http://127.0.0.1:9", "--from", "1d", "--backtest", "2d"],
            "--backtest is longer than --from",
        ),
        (["--prometheus", "http://h:abc"], "--prometheus is not allowed: it is not a URL"),
        (["--prometheus-token-file", "t"], "--prometheus-token-file is for --prometheus, which is missing"),
        (["--html", ""], "--html '' names no file"),
        (["--html", "-"], "--html '-' names no file"),
        (["--html", "."], ". cannot be written: Is a directory"),
    ],
)
def test_what_would_be_left_out_is_refused_before_anything_is_read(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = called(["--demo", *words], capsys)
    assert (code, out) == (2, "")
    assert said in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["-f", "--kubeconfig", "--prices", "--slo", "--html"])
def test_an_empty_name_of_a_file_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called([option, ""], capsys)
    assert (code, out) == (2, "")
    assert "names no file" in err


@pytest.mark.parametrize("option", ["-f", "--prices", "--slo", "--profiles", "--html"])
def test_a_name_that_is_too_long_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called([*(() if option == "-f" else ("--demo",)), option, "a" * 300], capsys)
    assert (code, out) == (2, "")
    assert "file name too long" in err.casefold()


@pytest.mark.parametrize("text", ["999999999w", "3661d", "0d"])
def test_a_time_of_ages_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(["--prometheus", "http://127.0.0.1:9", "--from", text], capsys)
    assert (code, out) == (2, "")
    assert "up to 3660d" in err


@pytest.mark.parametrize("option", ["-f", "--prices", "--slo", "--prometheus-token-file", "--profiles"])
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_page_is_not_written_over_what_is_read(
    option: str, is_folder: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, link = tmp_path / "in.json", tmp_path / "link"
    read.write_text("[]")
    link.symlink_to(read)
    given, page = (tmp_path, read) if is_folder else (read, link)
    words = [option, str(given), "--html", str(page), "--prometheus", "http://127.0.0.1:9"]
    code, out, err = called(words, capsys)
    assert (code, out) == (2, "")
    assert f"--html would write over {page}, which is read" in err
    assert read.read_text() == "[]"


@pytest.mark.slow
def test_objects_as_kubectl_writes_them_are_assessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, prices = tmp_path / "objects.json", tmp_path / "prices.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(demo.items())}))
    prices.write_text(demo.PRICES)
    _, shown, _ = called(["--demo"], capsys)
    code, out, _ = called(["-f", str(file), "--prices", str(prices)], capsys)
    assert code == 0
    # the longest cell of a column may be the file's name
    assert [line.split() for line in out.splitlines()[:24]] == [line.split() for line in shown.splitlines()[:24]]


def test_rules_of_which_a_file_has_no_object_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.json"
    rules = ("PodDisruptionBudget", "ScaledObject")
    file.write_text(json.dumps([item for item in demo.items() if item["kind"] not in rules]))
    _, out, _ = called(["-f", str(file)], capsys)
    assert (
        "- list of scaledobjects.keda.sh, poddisruptionbudgets.policy: the objects given have none, and savings" in out
    )
    assert "give kubectl get scaledobjects,poddisruptionbudgets as well" in out


def test_what_is_unknown_is_said_once_for_all_nodes_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "objects.json"
    nodes = [node(f"n{at}", 8, "NVIDIA-L4", "own") for at in range(5)]
    file.write_text(json.dumps([*nodes, *deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"])]))
    code, out, _ = called(["-f", str(file)], capsys)
    assert code == 0
    assert "for 40 GPUs on 5 nodes, without the price of 40 GPUs." in out
    assert (
        "- node n0, node n1, node n2 and 2 more: no price is known of own in us-east-1, on demand; give one in" in out
    )
    assert [line.split()[-2:] for line in out.splitlines() if line.startswith("shop/")] == [["unknown", "-"]]
    _, out, _ = called(["-f", str(file), "-o", "json"], capsys)
    assert json.loads(out)["unpricedGpus"] == 40


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


@pytest.mark.slow
def test_a_price_in_a_file_comes_before_the_demos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nprices: [{region: us-east-1, perGpuHour: 2}, {purchase: spot, perHour: 1}]")
    _, out, _ = called(["--demo", "--prices", str(prices)], capsys)
    assert out.startswith("Paid now: 116.00 EUR an hour")


def test_two_clusters_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(["--demo", "--context", "production"], capsys)
    assert code == 2
    assert "give one of --demo, -f" in err


@pytest.mark.slow
def test_the_estate_as_manifests_is_valid_and_costs_what_the_bill_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = called(["--demo", "-o", "yaml"], capsys)
    file = tmp_path / "estate.yaml"
    file.write_text(out)
    assert main(["validate", "-f", str(file)]) == 0
    documents = [document for document in yaml.safe_load_all(out) if document]
    nodes = [document["spec"] for document in documents if document["kind"] == "Node"]
    prices = {
        (document["metadata"]["name"], price["region"], price["purchase"]): price["perHour"]
        for document in documents
        if document["kind"] == "GpuType"
        for price in document["spec"]["prices"]
    }
    paid = sum(prices[node["gpuType"], node["region"], node["purchase"]] * node["gpus"] for node in nodes)
    # without the spot machines, whose GPUs no data sheet of the catalogue describes, and the one that does not run
    assert paid == pytest.approx(166.070084 - 4 * 0.4021 - 31.464)
    assert sum(node["gpus"] for node in nodes) == 56
    assert out.count("# no sheet of the catalogue is of NVIDIA-A10G:") == 4
    (service,) = [document for document in documents if document["kind"] == "Service"]
    assert service["spec"] == {"model": "ranker", "slo": {"latencyMs": 80, "percentile": 99}, "minInstances": 4}
    assert "# annotate chat/LeaderWorkerSet/llama-70b with gpuwright.io/model and gpuwright.io/slo-p99-ms:" in out


def test_names_that_manifests_do_not_allow_are_changed_and_stay_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = pod_spec("r:1", 1)
    promise = {"gpuwright.io/model": "ranker", "gpuwright.io/slo-p95-ms": "80"}
    items = [node(name, 8, "NVIDIA-L4", "own", region="eu west/1") for name in ("gpu.1", "gpu-1", "gpu-1-2", "x" * 80)]
    items += deployment("shop", "ranker.v2", spec, ["gpu.1"], annotations=promise)
    items.append({**next(deployment("shop", "ranker-v2", spec, [], annotations=promise)), "kind": "StatefulSet"})
    (tmp_path / "objects.json").write_text(json.dumps(items))
    _, out, _ = called(["-f", str(tmp_path / "objects.json"), "-o", "yaml"], capsys)
    (tmp_path / "estate.yaml").write_text(out)
    assert main(["validate", "-f", str(tmp_path / "estate.yaml")]) == 0
    documents = list(filter(None, yaml.safe_load_all(out)))
    names = [document["metadata"]["name"] for document in documents if document["kind"] == "Node"]
    assert names == ["gpu-1", "gpu-1-2", "gpu-1-3", "x" * 63]
    services = [document["metadata"]["name"] for document in documents if document["kind"] == "Service"]
    assert services == ["ranker-v2", "ranker-v2-statefulset"]
    assert "# 4 of its nodes have no known price: theirs is pricePerHour" in out


@pytest.mark.parametrize(
    ("annotations", "slo"),
    [
        ({"slo-p99-ms": "80"}, {"latencyMs": 80, "percentile": 99}),
        ({"slo-p99.9-ms": "1.5"}, {"latencyMs": 1.5, "percentile": 99.9}),
        ({"slo-ttft-ms": "500", "slo-tpot-ms": "40"}, {"ttftMs": 500, "tpotMs": 40, "percentile": 99}),
        ({"slo-ttft-ms": "500"}, {}),
        ({"slo-p99-ms": "soon"}, {}),
        ({"slo-p99-ms": "-1"}, {}),
        ({"slo-p10-ms": "80"}, {}),
    ],
)
def test_a_promise_is_read_from_annotations(annotations: dict[str, str], slo: dict[str, float]) -> None:
    assert read_annotated({f"gpuwright.io/{key}": value for key, value in annotations.items()}) == slo


@pytest.mark.slow
def test_a_file_of_slos_makes_services_of_workloads_without_annotations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, estate = tmp_path / "slo.yaml", tmp_path / "estate.yaml"
    file.write_text(
        "- {workload: shop/ranker, latencyMs: 60, percentile: 95}\n"
        "- {workload: chat/LeaderWorkerSet/llama-70b, model: llama, variant: fp8, ttftMs: 500, tpotMs: 40}\n"
    )
    _, out, _ = called(["--demo", "--slo", str(file), "-o", "yaml"], capsys)
    estate.write_text(out)
    assert main(["validate", "-f", str(estate)]) == 0
    (service,) = [document for document in yaml.safe_load_all(out) if document and document["kind"] == "Service"]
    assert service["spec"]["slo"] == {"latencyMs": 60, "percentile": 95}
    assert "# the lengths of requests of chat/LeaderWorkerSet/llama-70b are missing, and its Model with `llm`:" in out
    assert "#     ttftMs: 500.0" in out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- {workload: shop/rankr, latencyMs: 60}", "no workload is shop/rankr; did you mean shop/ranker?"),
        ("- {workload: ranker, latencyMs: 60}", "workload 'ranker' is not like shop/ranker"),
        ("- {workload: shop/ranker, latencyMs: 0}", "latencyMs 0 is outside 0..1e+12"),
        ("- {workload: shop/ranker, percentile: 10, latencyMs: 5}", "percentile 10 is outside 50..99.9"),
        ("- {workload: shop/ranker, ttftMs: 10}", "needs either latencyMs, or ttftMs and tpotMs"),
        ("- {workload: shop/ranker, percentile: 99.9}", "a percentile is of latencyMs, or of ttftMs and tpotMs, and"),
        ("- {workload: shop/ranker, latencyMs: 1e2}", "latencyMs '1e2' is text in YAML"),
        (
            "- {workload: shop/ranker, latencyMs: 60}\n- {workload: shop/Deployment/ranker, latencyMs: 80}",
            "[1]: shop/Deployment/ranker has an entry already,",
        ),
        ("- {workload: shop/ranker, colour: red}", "there is no field 'colour'"),
        ("- {workload: shop/ranker, model: 3}", "3 is not text"),
        ("workload: shop/ranker", "is not a list"),
        ("- 3", "[0] is not a mapping"),
        ("{", "is not YAML"),
    ],
)
def test_a_file_of_slos_is_refused_with_each_fault(
    text: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slo.yaml"
    file.write_text(text)
    code, out, err = called(["--demo", "--slo", str(file)], capsys)
    assert (code, out) == (2, "")
    assert fault in err


def test_cents_add_up_to_the_rounded_sum() -> None:
    third = 3_333_333_333
    assert list(cents_of([third, third, third])) == [333, 334, 333]
    assert sum(cents_of([15_000_000, 15_000_000])) == 3


def test_a_node_that_offers_no_gpu_that_can_be_counted_is_no_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, prices = tmp_path / "objects.json", tmp_path / "prices.yaml"
    odd = node("n1", 1, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "p4d.24xlarge")
    del odd["metadata"]["labels"]["nvidia.com/gpu.count"]
    odd["status"] = {"capacity": {"nvidia.com/foo": "1"}}
    file.write_text(json.dumps([odd]))
    prices.write_text("prices: [{node: n1, perHour: 5}]")
    code, out, _ = called(["-f", str(file), "--prices", str(prices), "-o", "yaml"], capsys)
    assert (code, list(filter(None, yaml.safe_load_all(out)))) == (0, [])


@pytest.mark.parametrize("words", [["-f"], ["--demo", "--prices"], ["--demo", "--slo"]])
def test_a_file_that_is_nested_deeply_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "deep"
    file.write_text("[" * (100_000 if words == ["-f"] else 500))
    code, out, err = called([*words, str(file)], capsys)
    assert (code, out) == (2, "")
    assert "is nested too deeply" in err
