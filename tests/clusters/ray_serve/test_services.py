"""The file that adopts deployments of Ray Serve: what it says, and a sentence for each fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.decided_bounds import AnnotatedBounds
from clusters.ray_serve.services import MOST_BYTES, ServicesRefused, read_services

ROOT = Path(__file__).parents[3]
ENTRY = {"application": "text", "deployment": "Summarizer", "service": "summarizer"}


def refuse(folder: Path, found: Any) -> list[str]:
    """Returns the faults without the file's name, which begins each."""
    file = folder / "ray.yaml"
    file.write_text(found if isinstance(found, str) else yaml.safe_dump(found))
    with pytest.raises(ServicesRefused) as refused:
        read_services(file)
    assert all(fault.startswith(str(file)) for fault in refused.value.faults)
    return [fault.removeprefix(str(file)).lstrip(": ") for fault in refused.value.faults]


def test_the_example_adopts_what_it_names() -> None:
    services = read_services(ROOT / "examples" / "ray" / "services.yaml")
    assert (services.dashboard, services.job, services.token_file) == ("http://127.0.0.1:8265", "ray", None)
    embedder, summarizer = services.adopted
    assert (str(embedder.name), embedder.mode, embedder.promise) == ("text/RayDeployment/Embedder", "advisory", None)
    assert (summarizer.mode, summarizer.bounds) == ("approve", AnnotatedBounds(1, 8))
    assert summarizer.promise is not None and summarizer.promise.latency is not None
    assert (summarizer.promise.latency.latency_ms, summarizer.promise.latency.percentile) == (300.0, 99.0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"application": "a/b"}, "application 'a/b' is not 1 to 63 letters, digits, dots, dashes and underscores"),
        ({"deployment": 'x"} or up{a="'}, "deployment 'x\"} or up{a=\"' is not 1 to 63 letters"),
        ({"deployment": ".."}, "deployment '..' is not 1 to 63 letters"),
        ({"service": "Summarizer"}, "service 'Summarizer' is not a DNS label"),
        ({"mode": "automatic"}, "mode 'automatic' is not one of advisory, approve, auto"),
        ({"mode": "auto"}, "mode auto needs maxReplicas: nobody looks at a number before it is written"),
        ({"minReplicas": 0}, "minReplicas 0 is outside 1..10000"),
        ({"maxReplicas": 2.5}, "maxReplicas 2.5 is outside 1..10000"),
        ({"maxReplicas": True}, "maxReplicas True is outside 1..10000"),
        ({"minReplicas": 9, "maxReplicas": 8}, "minReplicas 9 is above maxReplicas 8"),
        ({"latencyMs": "1e3"}, "latencyMs '1e3' is text in YAML; write it as 1000 or 1.0e+3"),
        ({"latencyMs": 80, "percentile": 100}, "percentile 100 is outside 50..99.9"),
        ({"percentile": 99}, "percentile needs latencyMs"),
        ({"maxReplica": 8}, "there is no field 'maxReplica'; did you mean maxReplicas?"),
    ],
)
def test_a_fault_of_an_entry_is_named_with_what_is_allowed(
    change: dict[str, object], fault: str, tmp_path: Path
) -> None:
    found = {"dashboard": "http://ray:8265", "deployments": [{**ENTRY, **change}]}
    (said,) = refuse(tmp_path, found)
    assert said.startswith(f"deployments[0]: {fault}")


@pytest.mark.parametrize("url", ["ray:8265", "file:///etc/passwd", "http://a:b@ray", "http://ray?x=1", 8265, None])
def test_what_is_no_address_of_a_dashboard_is_refused(url: object, tmp_path: Path) -> None:
    (said,) = refuse(tmp_path, {"dashboard": url, "deployments": [ENTRY]})
    assert said.startswith("dashboard is not the URL of Ray's dashboard, as http://127.0.0.1:8265: ")


def test_all_faults_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    found = {"dashbord": "", "prometheusJob": 'ray"}', "tokenFile": 7, "deployments": [ENTRY, dict(ENTRY), 7]}
    assert len(refuse(tmp_path, found)) == 6
    assert refuse(tmp_path, {"dashboard": "http://ray", "deployments": {}}) == ["deployments {} is not a list"]
    for text in ("- a", "7", "", "a: *b", "a: [", "a: " + "x" * MOST_BYTES):
        assert len(refuse(tmp_path, text)) == 1
    with pytest.raises(ServicesRefused, match="cannot be read: No such file"):
        read_services(tmp_path / "absent.yaml")
