"""The hooks file: who may write it, what it may say, and what a script's answer counts as."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.control.rent.calls import HookOrder
from app.control.rent.hooks import NO_FILE, FileHooks, load_hooks
from app.control.rent.states import HookVerb
from app.control.rent.trusted import HooksRefused

SPEC = {"gpuType": "l4-24gb", "gpus": 2, "pool": "burst"}


def order(verb: HookVerb = "rent", hook: str = "cloud") -> HookOrder:
    return HookOrder(verb, hook, "burst-1-k", "burst", "burst-1", SPEC)


def write(folder: Path, text: str, mode: int = 0o644) -> Path:
    path = folder / "hooks.yaml"
    path.write_text(text)
    path.chmod(mode)
    return path


def load(path: Path) -> FileHooks:
    return load_hooks(path, owner=os.getuid())


def script(folder: Path, body: str, timeout: str = "10") -> FileHooks:
    program = folder / "rent"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return load(write(folder, f"cloud: {{kind: script, argv: [{program}], timeoutSeconds: {timeout}}}"))


def test_a_file_that_others_may_write_or_own_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "try: {kind: dry-run}", 0o666)
    with pytest.raises(HooksRefused, match=r"hooks.yaml may be written by others \(mode 666\); run chmod go-w"):
        load(path)
    path.chmod(0o644)
    with pytest.raises(HooksRefused, match=f"belongs to user {os.getuid()}, and must belong to user 54321"):
        load_hooks(path, owner=54321)
    tmp_path.chmod(0o777)
    with pytest.raises(HooksRefused, match=r"its folder .* may be written by others"):
        load(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cloud: {kind: script, argv: [rent]}", "absolute path"),
        ("cloud: {kind: script, argv: []}", "absolute path"),
        ("cloud: {kind: lambda}", "kind script"),
        ("cloud: {kind: karpenter}", "missing required field `spec`"),
        ("cloud: {kind: karpenter, spec: {}, server: 'http://k'}", "server must be https://HOST"),
        ("cloud: {kind: karpenter, spec: {}, server: 'https://k/api'}", "server must be https://HOST"),
        ("cloud: {kind: karpenter, spec: {}, labels: {karpenter.sh/nodepool: a}}", "as it likes"),
        ("cloud: {kind: karpenter, spec: {}, timeoutSeconds: 0}", "timeoutSeconds"),
        ("cloud: {kind: karpenter, spec: {}, tokenFile: /none/token}", "tokenFile /none/token is not there"),
        ("cloud: {kind: dry-run, argv: [/bin/true]}", "kind script"),
        ("cloud: [", "kind script"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(HooksRefused, match=why):
        load(write(tmp_path, text))


def test_a_fault_of_the_file_is_named_by_its_line_which_may_hold_a_secret(tmp_path: Path) -> None:
    with pytest.raises(HooksRefused, match="is not YAML at line 2") as refused:
        load(
            write(
                tmp_path, "try: {kind: dry-run}\ncloud: {kind: webhook, url: https://h/?token=SECRET, secretFile: /s}"
            )
        )
    assert "SECRET" not in str(refused.value)


def test_a_program_that_others_may_write_or_replace_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "rent"
    program.write_text("#!/bin/sh\n")
    link = tmp_path / "link"
    link.symlink_to(program)
    text = f"cloud: {{kind: script, argv: [{link}]}}"
    program.chmod(0o777)
    with pytest.raises(HooksRefused, match="programs/rent may be written by others"):
        load(write(tmp_path, text))
    program.chmod(0o755)
    folder.chmod(0o777)
    with pytest.raises(HooksRefused, match="programs may be written by others"):
        load(write(tmp_path, text))
    folder.chmod(0o755)
    load(write(tmp_path, text))


def test_a_file_that_is_missing_or_a_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HooksRefused, match="cannot be opened: No such file"):
        load(tmp_path / "none.yaml")
    link = tmp_path / "link.yaml"
    link.symlink_to(write(tmp_path, "try: {kind: dry-run}"))
    with pytest.raises(HooksRefused, match="cannot be opened"):
        load(link)


def test_a_file_that_is_too_long_is_refused_and_not_cut(tmp_path: Path) -> None:
    with pytest.raises(HooksRefused, match="longer than 1 MiB"):
        load(write(tmp_path, "try: {kind: dry-run}\n" + "#" * (1 << 20)))


def test_a_hook_that_the_file_does_not_have_refuses_and_names_those_it_has(tmp_path: Path) -> None:
    hooks = load(write(tmp_path, "try: {kind: dry-run}"))
    assert hooks.call(order()).state == "refused"
    assert "no hook 'cloud'; it has: try" in hooks.call(order()).message
    assert FileHooks({}).call(order()) == ("refused", NO_FILE)


def test_a_dry_run_says_what_it_would_do(tmp_path: Path) -> None:
    hooks = load(write(tmp_path, "try: {kind: dry-run}"))
    answer = hooks.call(order(hook="try"))
    assert answer == ("tried", "a dry run: it would rent node burst-1 with 2 l4-24gb")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "state", "message"),
    [
        ("""echo '{"state": "accepted", "message": "i-7"}'""", "accepted", "i-7"),
        ("""echo '{"state": "refused", "message": "no capacity"}'""", "refused", "no capacity"),
        ("""echo '{"state": "returned"}'""", "failed", "answered returned when asked to rent; allowed: accepted"),
        ("echo done", "failed", "did not answer with JSON such as"),
        ("true", "failed", "printed 0 lines"),
        ("echo no quota >&2; exit 3", "failed", "ended with 3; the planner's log has what it wrote to stderr"),
        (r"""printf '{"state": "accepted", "message": "a\\u0000b\\u001b[2J"}\n'""", "accepted", "a b [2J"),
        ("yes", "failed", "printed more than 16 MiB"),
    ],
)
def test_a_script_answers_by_its_exit_status_and_one_line(tmp_path: Path, body: str, state: str, message: str) -> None:
    answer = script(tmp_path, body).call(order())
    assert answer.state == state
    assert message in answer.message


@pytest.mark.slow
def test_a_script_finds_its_order_in_its_environment_and_nothing_of_the_planners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    hooks = script(tmp_path, f"""env > {tmp_path}/seen; echo '{{"state": "accepted"}}'""")
    assert hooks.call(order()).state == "accepted"
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert {name: seen[name] for name in seen if name.startswith("GPUWRIGHT_")} == {
        "GPUWRIGHT_VERB": "rent", "GPUWRIGHT_KEY": "burst-1-k", "GPUWRIGHT_POOL": "burst", "GPUWRIGHT_NODE": "burst-1",
        "GPUWRIGHT_GPU_TYPE": "l4-24gb", "GPUWRIGHT_GPUS": "2",
    }  # fmt: skip
    assert "DATABASE_URL" not in seen


@pytest.mark.slow
def test_a_script_that_does_not_end_is_ended(tmp_path: Path) -> None:
    answer = script(tmp_path, "exec sleep 60", timeout="0.2").call(order())
    assert answer.state == "failed"
    assert "did not end within 0.2 s" in answer.message


@pytest.mark.slow
@pytest.mark.parametrize("body", ["sleep 5 & wait", """sleep 5 & echo '{"state": "accepted"}'"""])
def test_what_a_script_leaves_behind_is_not_waited_for(tmp_path: Path, body: str) -> None:
    answer = script(tmp_path, body, timeout="1").call(order())
    assert (answer.state, "did not end" in answer.message) in {("accepted", False), ("failed", True)}
    assert (answer.state == "failed") == body.endswith("wait")


@pytest.mark.slow
def test_a_script_that_prints_without_end_of_line_fills_no_memory(tmp_path: Path) -> None:
    answer = script(tmp_path, "head -c 50000000 /dev/zero").call(order())
    assert answer.state == "failed"
    assert len(answer.message) < 1000
