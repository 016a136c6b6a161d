"""A kubeconfig names a cluster and who asks it; a fault names the file, and no secret is repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from clusters.api_server import read_cluster
from clusters.kubeconfigs import ClusterUnreachable, choose_cluster, connect
from clusters.objects import objects_of
from clusters.reading import read_estate
from tests.clusters import demo
from tests.clusters.list_server import TOKEN, ListServer, serving


@pytest.fixture
def server() -> Iterator[ListServer]:
    with serving(demo.items()) as found:
        yield found


PLUGIN = """#!/bin/sh
echo "err SECRET" >&2
echo "$KUBERNETES_EXEC_INFO" >> "$0.asked"
{}
"""


def plugged(folder: Path, server: ListServer, body: str, version: str = "v1") -> Path:
    plugin, file = folder / "sign-in", server.kubeconfig(folder)
    plugin.write_text(PLUGIN.format(body))
    plugin.chmod(0o700)
    found = json.loads(file.read_text())
    found["users"][0]["user"] = {
        "exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": "./sign-in"}
    }
    file.write_text(json.dumps(found))
    return file


def test_a_plugin_gives_a_token_and_another_when_that_expires(server: ListServer, tmp_path: Path) -> None:
    answer = json.dumps({"status": {"token": TOKEN}})
    config = choose_cluster(None, str(plugged(tmp_path, server, f"echo '{answer}'")), {})
    server.answers["/api/v1/pods"] = [(401, {}, "Unauthorized")]
    found = read_cluster(config, print, lambda *_: None)
    assert read_estate(found) == read_estate(objects_of(demo.items()))
    asked = [json.loads(line) for line in (tmp_path / "sign-in.asked").read_text().splitlines()]
    assert asked == 2 * [
        {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {"interactive": False}}
    ]


@pytest.mark.parametrize(
    ("body", "version", "message"),
    [
        ("exit 3", "v1beta1", "the plugin sign-in ended with 3"),
        ("echo SECRET", "v1", "the plugin sign-in printed no JSON"),
        ("echo '{}'", "v1", "the plugin sign-in gave no token"),
        ("""echo '{"status": {"token": "SECRET OF TWO"}}'""", "v1", "the plugin sign-in gave no token"),
        ("", "v2", "the plugin sign-in is of client.authentication.k8s.io/v2; use one of"),
    ],
)
def test_a_plugin_that_gives_no_token_is_asked_once_and_what_it_prints_is_not_repeated(
    body: str, version: str, message: str, server: ListServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["assess", "--kubeconfig", str(plugged(tmp_path, server, body, version))]) == 4
    said = capsys.readouterr().err
    first, _, remedy = message.partition("; ")
    assert f"no token: {first}, so this is unknown: " in said
    assert remedy in said
    assert "SECRET" not in said
    assert server.requests == []


def test_a_plugin_that_is_not_there_is_named(server: ListServer, tmp_path: Path) -> None:
    file = plugged(tmp_path, server, "")
    (tmp_path / "sign-in").unlink()
    with pytest.raises(ClusterUnreachable, match="the plugin sign-in cannot be run: No such file or directory"):
        read_cluster(choose_cluster(None, str(file), {}), print, lambda *_: None)


A_CONTEXT = '"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}]'
SHAPE = "cannot be used: it needs lists of clusters, contexts and users"


def with_entries(cluster: str, user: str) -> str:
    entries = f'"clusters": [{{"name": "c", "cluster": {cluster}}}], "users": [{{"name": "u", "user": {user}}}]'
    return f"{{{entries}, {A_CONTEXT}}}"


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [
        ('{"clusters": [], "contexts": []}', None, "has no current context; it has none"),
        (f'{{"clusters": [], {A_CONTEXT}}}', "b", "no context 'b'; it has a"),
        (f'{{"clusters": [], {A_CONTEXT}}}', None, "names the cluster 'c', which .*kubeconfig lacks"),
        (
            f'{{"clusters": [{{"name": "c", "cluster": {{}}}}], {A_CONTEXT}}}', None,
            "names the user 'u', which .*kubeconfig lacks",
        ),
        ('{"clusters": [{"name": "c", "cluster": 3}]}', None, "has an entry of another shape: Expected `object`"),
        ("3", None, SHAPE),
        ("", None, SHAPE),
        ("[" * 500, None, SHAPE),
        ('{"contexts": []}', None, SHAPE),
        ("{", None, "kubeconfig is not YAML at line 1, column 2"),
        ('users:\n- user: {token: "SECRET', None, "kubeconfig is not YAML at line 2, column 24"),
        (with_entries("{}", '{"token": "SE CRET"}'), None, "the token of the user u of .*kubeconfig is not a line"),
        (with_entries('{"server": "http://h:abc"}', "{}"), None, "kubeconfig has no usable server: it is not a URL"),
        (with_entries('{"server": "nonsense"}', "{}"), None, "kubeconfig has no usable server: it is not a URL"),
        (with_entries('{"certificate-authority": "ca.crt"}', "{}"), None, "names the file .*ca.crt, which does"),
        (with_entries("{}", '{"client-certificate-data": "???"}'), None, "certificates that .*kubeconfig names"),
        (with_entries("{}", '{"auth-provider": {"name": "SECRET"}}'), None, "auth-provider not supported"),
    ],
)  # fmt: skip
def test_a_kubeconfig_that_names_no_cluster_is_refused(
    text: str, context: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(ClusterUnreachable, match=message) as refused:
        connect(choose_cluster(context, str(file), {}))
    assert str(file) in str(refused.value)
    assert "CRET" not in str(refused.value)


def test_a_context_without_a_user_is_asked_as_nobody(server: ListServer, tmp_path: Path) -> None:
    file = server.kubeconfig(tmp_path)
    found = json.loads(file.read_text())
    del found["contexts"][0]["context"]["user"]
    file.write_text(json.dumps(found))
    with pytest.raises(ClusterUnreachable, match="the token is expired or unknown"):
        read_cluster(choose_cluster(None, str(file), {}), print, lambda *_: None)


def test_the_token_of_a_file_comes_before_that_beside_it_as_in_a_pod(server: ListServer, tmp_path: Path) -> None:
    file, token = server.kubeconfig(tmp_path), tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    found = json.loads(file.read_text())
    found["users"][0]["user"] = {"token": f"{TOKEN}\n", "tokenFile": str(token)}
    file.write_text(json.dumps(found))
    config = choose_cluster(None, str(file), {})
    assert read_estate(read_cluster(config, print, lambda *_: None)) == read_estate(objects_of(demo.items()))
    token.write_text("SE\nCRET")
    with pytest.raises(ClusterUnreachable, match="no header can carry the token") as refused:
        read_cluster(config, print, lambda *_: None)
    assert "CRET" not in str(refused.value)


def test_several_files_are_read_as_kubectl_reads_them(server: ListServer, tmp_path: Path) -> None:
    """The first current context counts, though another file has it, and what it names is in a third."""
    file = server.kubeconfig(tmp_path)
    entries = json.loads(file.read_text())
    (tmp_path / "token").write_text(TOKEN)
    contexts = [*entries["contexts"], {"name": "staging", "context": {"cluster": "nowhere", "user": "u"}}]
    parts: dict[str, dict[str, object]] = {
        "first": {"current-context": "production"},
        "second": {
            "current-context": "staging",
            "contexts": contexts,
            "users": [{"name": "u", "user": {"tokenFile": "../token"}}],
        },
        "third": {"clusters": entries["clusters"], "users": [{"name": "u", "user": {"token": "of the third"}}]},
    }
    for name, part in parts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(json.dumps({"clusters": [], "contexts": [], "users": [], **part}))
    named = ":".join(str(tmp_path / name / "config") for name in parts)
    config = choose_cluster(None, None, {"KUBECONFIG": named})
    assert (config.context_name, config.cluster.server) == ("production", server.url)
    assert read_estate(read_cluster(config, print, lambda *_: None)) == read_estate(objects_of(demo.items()))
    with pytest.raises(ClusterUnreachable, match=r"the context staging of .* names the cluster 'nowhere'"):
        choose_cluster("staging", None, {"KUBECONFIG": named})


def test_without_a_kubeconfig_the_verb_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match="give one with --kubeconfig, or objects with -f"):
        choose_cluster(None, None, {"KUBECONFIG": str(tmp_path / "absent")})
    with pytest.raises(ClusterUnreachable, match="there is no kubeconfig absent"):
        choose_cluster(None, "absent", {})


@pytest.mark.parametrize("name", ["a" * 300, "~nobody-of-this-name/config"])
def test_a_kubeconfig_that_no_file_can_be_is_not_there(name: str) -> None:
    with pytest.raises(ClusterUnreachable, match="there is no kubeconfig"):
        choose_cluster(None, name, {})
    with pytest.raises(ClusterUnreachable, match="there is no kubeconfig"):
        choose_cluster(None, None, {"KUBECONFIG": name})


def test_a_current_context_that_is_no_text_names_none(server: ListServer, tmp_path: Path) -> None:
    file = server.kubeconfig(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"current-context": ["production"]}))
    with pytest.raises(ClusterUnreachable, match="has no current context; it has production"):
        choose_cluster(None, str(file), {})
