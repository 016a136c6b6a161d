"""A control plane in other hands assigns what it likes: the node starts nothing that its allow-list does not admit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agents.admission.reading import AllowList, parse
from tests.agents.admission.lists import COMMAND, CONTAINER, DIGEST, IMAGE, assigned, read_list, refusal
from tests.agents.admission.signing import SigningKey


def changed(**fields: Any) -> Mapping[str, Any]:
    return {**COMMAND, **fields}


def container(**fields: Any) -> Mapping[str, Any]:
    return {**CONTAINER, **fields}


def argument(at: int, word: str) -> Mapping[str, Any]:
    args = list(COMMAND["args"])
    args[at] = word
    return changed(args=args)


# A sentence, the runtime that an assignment has, and words of the node's answer.
WAYS: list[tuple[str, Mapping[str, Any], str]] = [
    ("another program", changed(command=["/bin/sh", "-c", "id"], args=[]), "'/bin/sh' is not admitted"),
    ("the same program under another name", changed(command=["/usr/bin/python3", "-m", "http.server"]), "it admits"),
    ("a program that a search path would find", changed(command=["python3", "-m", "http.server"]), "'python3'"),
    ("a program that climbs out of its folder", changed(command=["/opt/../bin/sh"], args=[]), "'/opt/../bin/sh'"),
    ("code in place of the module", changed(command=["{python}", "-c", "import os"]), "argument 1 '-c'"),
    ("another module", changed(command=["{python}", "-m", "pip"], args=["install", "x"]), "argument 2 'pip'"),
    ("a module whose name begins with the admitted one", changed(command=["{python}", "-m", "http.server2"]), "admits"),
    ("a word in front of the admitted ones", changed(command=["{python}", "-i", "-m", "http.server"]), "argument 1"),
    ("an option before the module", changed(command=["{python}", "-Xfoo", "http.server"]), "argument 1 '-Xfoo'"),
    ("another address to listen at", argument(1, "0.0.0.0"), "argument 4 '0.0.0.0'"),
    ("another port", argument(2, "22"), "argument 5 '22'"),
    ("a number out of its range", argument(3, "--workers=5"), "admits --workers={integer:1..4} there"),
    ("a number with more behind it", argument(3, "--workers=2 --cgi"), "argument 6"),
    ("a number in other digits", argument(3, "--workers=\u0663"), "argument 6"),
    ("a line feed after the number", argument(3, "--workers=2\n"), "argument 6"),
    ("a further argument", changed(args=[*COMMAND["args"], "--cgi"]), "argument 7 '--cgi'"),
    ("fewer arguments, so that a default holds", changed(args=COMMAND["args"][:3]), "only with a further argument"),
    ("two arguments in one", changed(args=["--bind {host}", *COMMAND["args"][2:]]), "argument 3 '--bind {host}'"),
    ("an empty argument in between", changed(args=["", *COMMAND["args"]]), "argument 3 ''"),
    ("no program at all", changed(command=[], args=[]), "exactly one of them"),
    ("an image and a command at once", changed(image=IMAGE), "exactly one of them"),
    ("a library to load first", changed(env={"LD_PRELOAD": "/tmp/x.so"}), "the variable 'LD_PRELOAD'"),
    ("the same in small letters", changed(env={"ld_preload": "/tmp/x.so"}), "the variable 'ld_preload'"),
    ("a module path", changed(env={"PYTHONPATH": "/tmp"}), "the variable 'PYTHONPATH'"),
    ("a start-up file of Python's", changed(env={"PYTHONSTARTUP": "/tmp/x.py"}), "the variable 'PYTHONSTARTUP'"),
    ("other GPUs", changed(env={"CUDA_VISIBLE_DEVICES": "all"}), "the variable 'CUDA_VISIBLE_DEVICES'"),
    ("no limit of SMs", changed(env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}), "CUDA_MPS_ACTIVE"),
    ("another MPS daemon", changed(env={"CUDA_MPS_PIPE_DIRECTORY": "/tmp"}), "the variable 'CUDA_MPS_PIPE"),
    ("the devices of a container", changed(env={"NVIDIA_VISIBLE_DEVICES": "all"}), "the variable 'NVIDIA_VIS"),
    ("a proxy that reads along", changed(env={"HTTPS_PROXY": "http://evil"}), "the variable 'HTTPS_PROXY'"),
    ("another search path", changed(env={"PATH": "/tmp"}), "the variable 'PATH'"),
    ("a variable that the allow-list does not name", changed(env={"DEBUG": "1"}), "admits LOG_LEVEL, TITLE"),
    ("a value that is not admitted", changed(env={"LOG_LEVEL": "trace"}), "LOG_LEVEL='trace'"),
    ("a second variable in a value", changed(env={"TITLE": "a\nLD_PRELOAD=x"}), "TITLE="),
    ("a placeholder of a folder in a value", changed(env={"TITLE": "{volume.models}"}), "TITLE="),
    ("a secret under another name", changed(secrets={"LOG_LEVEL": "shop-key"}), "the secret 'shop-key' as"),
    ("a secret of someone else's", changed(secrets={"API_KEY": "root-key"}), "the secret 'root-key'"),
    ("the secret as a variable of Python's", changed(secrets={"PYTHONPATH": "shop-key"}), "the secret"),
    ("a volume that the entry does not name", changed(volumes=["models", "host"]), "the volume 'host'"),
    ("the image on a node of processes", CONTAINER, "it admits no image"),
]
CONTAINERS: list[tuple[str, Mapping[str, Any], str]] = [
    ("another image", container(image=f"registry.example.com/shop/evil@{DIGEST}"), "image 'registry.example.com"),
    ("the image by its tag", container(image="registry.example.com/shop/search:1"), "it admits registry"),
    ("another digest of the image", container(image=IMAGE[:-1] + "c"), "is not admitted by this node"),
    ("another registry of the same name", container(image=f"evil.example.com/shop/search@{DIGEST}"), "image"),
    ("a repository that begins alike", container(image=f"registry.example.com/shop/search2@{DIGEST}"), "image"),
    ("a file outside the models", container(args=["--model", "../../etc/shadow"]), "argument 1"),
    ("an absolute file", container(args=["--model", "/etc/shadow"]), "argument 1 '/etc/shadow'"),
    ("a path that comes back", container(args=["--model", "a/../../etc"]), "argument 1"),
    ("an option in place of a file", container(args=["--model", "--privileged"]), "argument 1 '--privileged'"),
    ("the engine's socket as a volume", container(volumes=["/var/run/docker.sock"]), "docker.sock"),
    ("a host folder as a volume", container(volumes=["/:/host"]), "/host"),
    ("a command of the node's", COMMAND, "it admits no command"),
]


@pytest.mark.parametrize(("runtime", "says"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_the_node_refuses_and_names(tmp_path: Path, runtime: Mapping[str, Any], says: str) -> None:
    found = read_list(tmp_path)
    try:
        reason, message = refusal(found, runtime)
    except msgspec.ValidationError:  # not even a message: the agent refuses the whole assignment
        return
    assert reason == "not_admitted"
    assert says in message


@pytest.mark.parametrize(("runtime", "says"), [way[1:] for way in CONTAINERS], ids=[way[0] for way in CONTAINERS])
def test_a_node_of_containers_refuses_and_names(tmp_path: Path, runtime: Mapping[str, Any], says: str) -> None:
    found = read_list(tmp_path)
    try:
        reason, message = refusal(found, runtime, "docker")
    except msgspec.ValidationError as error:
        assert "volumes" in str(error)
        return
    assert reason == "not_admitted"
    assert says in message


SIGNED = f"registry.example.com/team/app@{DIGEST}"
OTHER_DIGEST = f"registry.example.com/team/app@sha256:{'cd' * 32}"
# A sentence, the image that an assignment has, the text that was signed, by whose key, and words of the node's answer.
UNSIGNED: list[tuple[str, str, str, str, str]] = [
    ("no signature", SIGNED, "", "own", "has no signature by the key of team"),
    ("the signature of another image", SIGNED, f"registry.example.com/team/web@{DIGEST}", "own", "not by the key"),
    ("the signature of another digest", OTHER_DIGEST, SIGNED, "own", "not by the key of team"),
    ("the signature of another key", SIGNED, SIGNED, "other", "not by the key of team"),
    ("a tag that was signed", "registry.example.com/team/app:1", "registry.example.com/team/app:1", "own", "it admits"),
    ("a tag beside the digest", f"registry.example.com/team:1@{DIGEST}", SIGNED, "own", "it admits signed images of"),
    ("a repository that begins alike", f"registry.example.com/team2/app@{DIGEST}", SIGNED, "own", "it admits signed"),
    ("another registry", f"evil.example.com/registry.example.com/team/app@{DIGEST}", SIGNED, "own", "it admits signed"),
    ("a digest of another length", SIGNED[:-1], SIGNED[:-1], "own", "it admits signed images of"),
    ("a digest with more behind it", f"{SIGNED}:1", f"{SIGNED}:1", "own", "it admits signed images of"),
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SigningKey]:
    return {name: SigningKey(tmp_path_factory.mktemp(name)) for name in ("own", "other")}


def signed_list(key: SigningKey) -> AllowList:
    entry = f"{{repository: registry.example.com/team, key: {key.public}, args: [--port, '{{port}}']}}"
    return parse(f"user: agent\nadmit:\n  team: {entry}\n", "allow-list.yaml")


@pytest.mark.parametrize(
    ("image", "text", "by", "says"), [way[1:] for way in UNSIGNED], ids=[way[0] for way in UNSIGNED]
)
def test_an_image_of_a_repository_is_refused_without_the_keys_signature(
    keys: Mapping[str, SigningKey], image: str, text: str, by: str, says: str
) -> None:
    signature = {"signature": keys[by].sign_image(text)} if text else {}
    runtime = {"image": image, "args": ["--port", "{port}"], **signature}
    reason, message = refusal(signed_list(keys["own"]), runtime, "docker")
    assert reason == "not_admitted"
    assert says in message


def test_a_signed_image_of_a_repository_is_admitted_with_the_entrys_arguments_only(
    keys: Mapping[str, SigningKey],
) -> None:
    listed = signed_list(keys["own"])
    runtime = {"image": SIGNED, "args": ["--port", "{port}"], "signature": keys["own"].sign_image(SIGNED)}
    assert refusal(listed, runtime, "docker") == ("", "")
    assert "argument 2 '--debug'" in refusal(listed, {**runtime, "args": ["--port", "{port}", "--debug"]}, "docker")[1]
    assert "it admits no image" in refusal(listed, runtime, "process")[1]


def test_what_the_list_admits_is_not_refused(tmp_path: Path) -> None:
    assert refusal(read_list(tmp_path), COMMAND) == ("", "")
    assert refusal(read_list(tmp_path), CONTAINER, "docker") == ("", "")


def test_a_node_without_an_allow_list_admits_nothing(tmp_path: Path) -> None:
    assert (
        refusal(AllowList(), COMMAND)[1]
        == "command: command '{python}' is not admitted by this node; it admits no command"
    )


def test_a_template_beside_a_runtime_is_refused(tmp_path: Path) -> None:
    reason, message = refusal(read_list(tmp_path), COMMAND, template="vllm")
    assert (reason, "not both" in message) == ("not_admitted", True)


@pytest.mark.parametrize("field", ["privileged", "capAdd", "networkMode", "mounts", "devices", "user", "entrypoint"])
def test_fields_that_the_contract_does_not_have_are_dropped_with_the_message(tmp_path: Path, field: str) -> None:
    """They reach nothing: what is decoded has no such field, and the container's settings do not come from it."""
    line = assigned({**CONTAINER, field: "root"})
    assert line.runtime is not None
    assert not hasattr(line.runtime, field)
    assert refusal(read_list(tmp_path), {**CONTAINER, field: "root"}, "docker") == ("", "")


@pytest.mark.needs_root("to give a file away")
@pytest.mark.parametrize("given", ["serve.py", "."])
def test_a_script_that_a_copy_could_have_rewritten_is_refused(tmp_path: Path, given: str) -> None:
    script = tmp_path / "serve.py"
    script.touch(mode=0o644)
    listed = parse(f"user: 20001\nadmit:\n  x: {{argv: ['{{python}}', {script}]}}\n", "allow-list.yaml")
    runtime = {"command": ["{python}", str(script)]}
    assert refusal(listed, runtime) == ("", "")
    os.chown(tmp_path / given, 20001, 20001)
    assert "belongs to user 20001, and must belong to root" in refusal(listed, runtime)[1]
