"""delete, edit, wait and watch against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Done, Run, service
from tests.support.patience import patience
from tests.support.server import RunningServer


@contextmanager
def process(server: RunningServer, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command line as its own process, ended with the test."""
    env = os.environ | {"GPUWRIGHT_SERVER": server.url, "GPUWRIGHT_TOKEN": server.admin_token}
    started = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def editor(tmp_path: Path, program: str) -> str:
    """An EDITOR that runs this Python on the file: `text` in, `text` out; `turn` counts its calls."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib\n"
        f"log = pathlib.Path({str(tmp_path / 'seen.txt')!r})\n"
        "file = pathlib.Path(sys.argv[-1])\n"
        "seen = log.read_text().split('\\f') if log.exists() else []\n"
        "turn, text = len(seen), file.read_text()\n"
        "log.write_text('\\f'.join([*seen, text]))\n"
        f"{program}\n"
        "file.write_text(text)\n"
    )
    return f"{sys.executable} {script}"


def seen(tmp_path: Path) -> list[str]:
    return (tmp_path / "seen.txt").read_text().split("\f")


@pytest.mark.slow
def test_delete_by_name_and_what_is_gone_is_exit_code_1(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("a1") + service("a2"))
    assert world("delete", "service", "shop/a1", "--dry-run").lines == ["service/shop/a1 deleted (dry run)"]
    half = world("delete", "service", "shop/a1", "shop/nope", "--yes")
    assert (half.code, half.out) == (1, "") and "there is no Service shop/nope" in half.err
    assert world("delete", "service", "shop/a1", "a2", "--yes").lines == [
        "service/shop/a1 deleted",
        "service/shop/a2 deleted",
    ]
    again = world("delete", "service", "shop/a1", "--yes")
    assert again.code == 1 and "there is no Service shop/a1" in again.err
    assert world("delete", "service", "shop/a1", "--ignore-not-found", "--yes").code == 0


@pytest.mark.slow
def test_without_a_terminal_nothing_is_deleted_unless_yes_is_given(world: Run) -> None:
    world("apply", "--set", "safe", "-f", "-", stdin=service("safe"))
    for words in (("service", "shop/safe"), ("node", "node-1", "--force")):
        done = world("delete", *words)
        assert (done.code, done.out) == (2, "") and "give --yes" in done.err
    pruned = world("apply", "--set", "safe", "--prune", "-f", "-", stdin=service("other"))
    assert (pruned.code, pruned.out) == (2, "") and "give --yes" in pruned.err
    assert world("get", "service", "shop/safe").code == world("get", "node", "node-1").code == 0


def test_what_get_prints_as_names_delete_and_describe_take(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("n1", "named") + service("n2", "named"))
    names = world("get", "svc", "--tenant", "named", "-o", "name").lines
    assert [line for line in world("describe", *names, "node/node-1").lines if line.startswith("Name:")] == [
        "Name:       n1",
        "Name:       n2",
        "Name:       node-1",
    ]
    assert world("delete", *names, "--yes").lines == ["service/named/n1 deleted", "service/named/n2 deleted"]
    assert world("delete", "service/named/n1", "n2").code == 2


def test_what_is_referred_to_is_not_deleted_and_the_referrers_are_named(world: Run) -> None:
    done = world("delete", "gputype", "v100-16gb", "--yes")
    assert done.code == 3 and "referred to by Node node-1" in done.err


def test_a_file_is_deleted_in_an_order_in_which_nothing_is_referred_to(world: Run, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(
        "apiVersion: gpuwright/v1\nkind: Model\nmetadata: {name: gone}\n"
        "spec: {variants: [{name: fp16, accuracy: 0.7, paramsM: 1}]}\n" + service("b1").replace("resnet50", "gone")
    )
    assert world("apply", "-f", str(file)).code == 0
    assert world("delete", "-f", str(file), "--yes").lines == ["service/shop/b1 deleted", "model/gone deleted"]


def test_edit_sends_what_was_saved(world: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world("apply", "-f", "-", stdin=service("e1"))
    monkeypatch.setenv("EDITOR", editor(tmp_path, "text = text.replace('latencyMs: 80', 'latencyMs: 60')"))
    assert world("edit", "service", "shop/e1").lines == ["service/shop/e1 updated"]
    assert json.loads(world("get", "svc", "shop/e1", "-o", "json").out)["spec"]["slo"]["latencyMs"] == 60


def test_edit_without_a_change_changes_nothing(world: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world("apply", "-f", "-", stdin=service("e2"))
    monkeypatch.setenv("EDITOR", editor(tmp_path, "pass"))
    assert world("edit", "svc/shop/e2").lines == ["service/shop/e2 unchanged"]


@pytest.mark.slow
def test_a_refused_edit_is_opened_again_with_its_faults(
    world: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world("apply", "-f", "-", stdin=service("e3"))
    program = "text = text.replace('latencyMs: 80', 'latencyMs: -1') if turn == 0 else text.replace('-1', '70')"
    monkeypatch.setenv("EDITOR", editor(tmp_path, program))
    assert world("edit", "service", "shop/e3").lines == ["service/shop/e3 updated"]
    second = seen(tmp_path)[1]
    assert "#| " in second and "spec.slo.latencyMs" in second and "latencyMs: -1" in second


@pytest.mark.slow
def test_an_edit_given_up_after_a_refusal_is_kept_in_a_file(
    world: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world("apply", "-f", "-", stdin=service("e4"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    program = "text = text.replace('latencyMs: 80', 'latencyMs: -1')"
    monkeypatch.setenv("EDITOR", editor(tmp_path, program))
    done = world("edit", "service", "shop/e4")
    assert done.code == 2
    kept = Path(next(line for line in done.err.splitlines() if "is kept in" in line).rpartition(" ")[2])
    assert "latencyMs: -1" in kept.read_text()


@pytest.mark.slow
def test_a_change_by_someone_else_is_shown_and_not_overwritten(
    world: Run, server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world("apply", "-f", "-", stdin=service("e5"))
    other = (
        "import http.client, json\n"
        f"c = http.client.HTTPConnection('127.0.0.1', {server.port})\n"
        "patch = json.dumps({'spec': {'priority': 777}})\n"
        f"head = {{'Authorization': 'Bearer {server.admin_token}', 'Content-Type': 'application/merge-patch+json'}}\n"
        "if turn == 0:\n"
        "    c.request('PATCH', '/api/v1/services/shop/e5', patch, head)\n"
        "    assert c.getresponse().status == 200\n"
        "    text = text.replace('latencyMs: 80', 'latencyMs: 60')\n"
        "else:\n"
        "    text += '  priority: 777\\n'\n"
    )
    monkeypatch.setenv("EDITOR", editor(tmp_path, other))
    assert world("edit", "service", "shop/e5").lines == ["service/shop/e5 updated"]
    assert "#|   priority: 777" in seen(tmp_path)[1]
    spec = json.loads(world("get", "svc", "shop/e5", "-o", "json").out)["spec"]
    assert (spec["slo"]["latencyMs"], spec["priority"]) == (60, 777)


def test_an_editor_that_cannot_be_started_is_named(world: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    done = world("edit", "node", "node-1")
    assert done.code == 2 and "cannot start the editor '/no/such/editor'" in done.err


def test_without_a_terminal_and_an_editor_nothing_is_opened(world: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    done = world("edit", "node", "node-1")
    assert done.code == 2 and "there is no terminal for an editor" in done.err


def test_wait_returns_at_once_when_it_holds_already(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("w1"))
    done = world("wait", "service", "shop/w1", "--for", "condition=SloAttainable=False")
    assert (done.code, done.lines) == (0, ["service/shop/w1 condition met"])
    assert world("wait", "node", "node-1", "--for", "spec.gpus=4").code == 0


def test_wait_says_what_is_there_when_the_time_is_over(world: Run) -> None:
    world("apply", "-f", "-", stdin=service("w2"))
    done = world("wait", "service", "w2", "--for", "condition=SloAttainable", "--timeout", "1s")
    assert done.code == 1 and "did not hold within 1 s; it is False: " in done.err
    assert world("wait", "service", "nobody", "--for", "spec.priority=1").code == 1


@pytest.mark.slow
def test_wait_sees_the_change_that_comes_while_it_waits(world: Run, server: RunningServer) -> None:
    world("apply", "-f", "-", stdin=service("w3"))
    steps: list[tuple[str, Callable[[], Done]]] = [
        ("spec.slo.latencyMs=50", lambda: world("apply", "-f", "-", stdin=service("w3", latency_ms=50))),
        ("delete", lambda: world("delete", "service", "shop/w3", "--yes")),
        ("create", lambda: world("apply", "-f", "-", stdin=service("w3"))),
    ]
    for wanted, change in steps:
        with process(server, "wait", "service", "shop/w3", "--for", wanted, "--timeout", "60s", "-v") as waiting:
            assert waiting.stderr is not None
            while "< 200\n" not in waiting.stderr.readline():  # the stream is open
                pass
            assert change().code == 0
            assert waiting.wait(patience()) == 0


@pytest.mark.slow
def test_watch_shows_changes_and_ends_quietly_with_ctrl_c(world: Run, server: RunningServer) -> None:
    with process(server, "watch", "services", "--tenant", "seen", "-o", "name", "-v") as watching:
        assert watching.stderr is not None and watching.stdout is not None
        while "< 200\n" not in watching.stderr.readline():
            pass
        world("apply", "-f", "-", stdin=service("x1", "seen") + service("x2", "unseen"))
        world("delete", "service", "seen/x1", "--yes")
        assert [watching.stdout.readline().rstrip() for _ in range(2)] == [
            "service/seen/x1 added",
            "service/seen/x1 deleted",
        ]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(patience()) == 130
        assert "Traceback" not in watching.stderr.read()


@pytest.mark.slow
def test_get_watch_lists_first_and_survives_a_restart_of_the_server(world: Run, server: RunningServer) -> None:
    world("apply", "-f", "-", stdin=service("y1", "lasting"))
    with process(server, "get", "svc", "--tenant", "lasting", "--watch", "-o", "name") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "service/lasting/y1 listed\n"
        server.kill()
        server.restart()
        world("apply", "-f", "-", stdin=service("y2", "lasting"))
        assert watching.stdout.readline() == "service/lasting/y2 added\n"
