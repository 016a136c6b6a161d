"""`gpuwright assess` where servers refuse, lie or end: each trouble has a sentence, and the rest of the page stands."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from cli.main import main
from clusters.objects import KINDS
from clusters.savings.floors import NEEDED_KINDS
from tests.kubernetes.estates.drawing import DrawnEstate, draw_estate
from tests.kubernetes.estates.running import AssessedEstate, measured_estate
from tests.kubernetes.filling import ALL_LISTS, READS, RecordedCluster
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

DAY = 86_400
NO_COUNTERS = "Prometheus has no counters of vLLM"


@pytest.fixture(scope="module")
def estate() -> DrawnEstate:
    return draw_estate("deployments", 40, 6, 25 * 60)


@pytest.fixture(scope="module")
def filled(recorded_cluster: RecordedCluster, estate: DrawnEstate) -> Iterator[RecordedCluster]:
    with recorded_cluster.filled(list(estate.items)):
        yield recorded_cluster


@pytest.fixture(scope="module")
def assessed(
    filled: RecordedCluster, estate: DrawnEstate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AssessedEstate]:
    user = filled.add_reader("troubled", ALL_LISTS)
    with measured_estate(estate, user, tmp_path_factory.mktemp("troubles")) as found:
        yield found


def page(assessed: AssessedEstate, *more: str) -> dict[str, Any]:
    code, printed = assessed.run(*more, "-o", "json")
    assert code == 0, printed
    found: dict[str, Any] = json.loads(printed)
    return found


def sentences(found: Mapping[str, Any]) -> str:
    return "\n".join(f"{each['subject']}: {each['reason']}; {each['remedy']}" for each in found["unknown"])


def test_each_list_that_is_forbidden_is_one_sentence_and_what_it_does_not_concern_stands(
    filled: RecordedCluster, assessed: AssessedEstate
) -> None:
    whole = page(assessed)
    assert whole["savings"]["nodes"]
    for resource in KINDS:
        other = "pods" if resource.kind == "Node" else "nodes"
        rules = [(group, ",".join({*names.split(",")} - {resource.plural}), READS) for group, names, _ in ALL_LISTS]
        user = filled.add_reader(f"not-{resource.plural}", [rule for rule in rules if rule[1]], other)
        found = page(assessed, "--kubeconfig", str(user.kubeconfig))
        forbidden = [each for each in found["unknown"] if "it is forbidden (403" in each["reason"]]
        assert [each["subject"] for each in forbidden] == [f"list of {resource.display_name}"]
        assert forbidden[0]["remedy"] == "allow `get` and `list` of it"
        if resource.kind != "Node":
            assert found["nanoPerHour"] == whole["nanoPerHour"]
        if resource.kind in NEEDED_KINDS:
            assert not found.get("savings", {}).get("nodes")
        elif resource.kind != "Node":
            assert found["savings"] == whole["savings"]


def test_a_token_that_has_expired_is_a_sentence(
    filled: RecordedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = filled.add_reader("expired", ALL_LISTS)
    written = json.loads(user.kubeconfig.read_text())
    token = written["users"][0]["user"]["token"]
    key = (filled.server.folder / "server.key").read_bytes()
    written["users"][0]["user"]["token"] = aged(token, key)
    old = tmp_path / "kubeconfig"
    old.write_text(json.dumps(written))
    assert main(["assess", "--kubeconfig", str(old)]) == 4
    said = capsys.readouterr().err
    assert "the token is expired or unknown (401 Unauthorized)" in said
    assert "sign in to the cluster again" in said


def aged(token: str, key: bytes) -> str:
    """Returns the same token as it would have been issued a day ago, signed by the server's own key."""
    head, claims, _ = token.split(".")
    found = json.loads(base64.urlsafe_b64decode(claims + "=="))
    found |= {name: found[name] - DAY for name in ("iat", "nbf", "exp")}
    signed = f"{head}.{base64.urlsafe_b64encode(json.dumps(found).encode()).decode().rstrip('=')}"
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    parts = decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    signature = b"".join(part.to_bytes(32, "big") for part in parts)
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize(("off", "sentence"), [(DAY, "24.0 hours behind"), (-DAY, "24.0 hours ahead of")])
def test_a_clock_that_is_off_by_a_day_is_said_and_changes_no_figure(
    off: int, sentence: str, assessed: AssessedEstate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, real = page(assessed), time.time
    monkeypatch.setattr(time, "time", lambda: real() + off)
    found = page(assessed)
    assert f"Prometheus: its clock is {sentence} this machine's; times are counted back from its clock" in (
        sentences(found)
    )
    assert (found["nanoPerHour"], found["savings"]) == (whole["nanoPerHour"], whole["savings"])


def test_metrics_that_are_a_day_old_or_of_tomorrow_save_nothing(
    filled: RecordedCluster, estate: DrawnEstate, assessed: AssessedEstate, tmp_path: Path
) -> None:
    paid = page(assessed)["nanoPerHour"]
    user = filled.add_reader("late", ALL_LISTS)
    # of servers that give their own times to what they count
    for days, sentence in ((-1, NO_COUNTERS), (1, "Prometheus has its load for 1.0 hours of 24.0 hours")):
        folder = tmp_path / str(days)
        folder.mkdir()
        with measured_estate(estate, user, folder, ahead_seconds=days * DAY) as shifted:
            found = page(shifted)
        assert found["nanoPerHour"] == paid
        assert not found["savings"]["nodes"]
        assert sentence in sentences(found)


HALVES = (  # series that go, one half after the other, and what is said then
    ("istio_request_duration_milliseconds_bucket", "no metric of istio says which latency it keeps"),
    ("DCGM_FI_PROF_SM_ACTIVE", "no metric says how active they are"),
    ("DCGM_FI_DEV_FB_USED", "Prometheus has no metrics of dcgm-exporter"),
    ("kube_pod_owner", "whether jobs or people use it at other times was not measured"),
    ("istio_requests_total", NO_COUNTERS),
)


def test_each_half_of_the_metrics_that_is_missing_has_a_sentence_and_never_saves_more(
    filled: RecordedCluster, estate: DrawnEstate, tmp_path: Path
) -> None:
    user = filled.add_reader("forgetful", ALL_LISTS)
    with measured_estate(estate, user, tmp_path) as assessed:
        url = assessed.words[assessed.words.index("--prometheus") + 1]
        before = page(assessed)
        paid, said = before["nanoPerHour"], sentences(before)
        for metric, sentence in HALVES:
            assert sentence not in said
            forget(url, metric)
            found = page(assessed)
            said = sentences(found)
            assert sentence in said, metric
            assert found["nanoPerHour"] == paid
            assert found["savings"]["nanoPerHour"] <= before["savings"]["nanoPerHour"]
            before = found
        assert not before["savings"]["nodes"]


def forget(url: str, metric: str) -> None:
    """Lets Prometheus forget all that it has of a metric."""
    asked = urllib.parse.urlencode({"match[]": metric})
    ending = urllib.request.Request(f"{url}/api/v1/admin/tsdb/delete_series?{asked}", method="POST")
    urllib.request.urlopen(ending, timeout=patience()).close()

    def is_gone() -> bool:
        words = urllib.parse.urlencode({"query": f"last_over_time({metric}[1d])"})
        with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=patience()) as answer:
            return not json.load(answer)["data"]["result"]

    until(is_gone, metric)
