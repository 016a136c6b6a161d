"""The program, the number of words and the environment come from the template alone, for any assignment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.contract.reports import HeldBack
from agents.templates import Filled
from agents.templates.filling import ArgumentRefused, Builtin, fill
from agents.templates.reading import PLACEHOLDER, Template, parse
from tests.support.soak import scaled

TEXT = """
argv: ["{python}", -m, serve, "--name={name}", "{name}", "--n={count}", "--x={part}", "--how={how}", "{file}", --gpu,
  "{gpu}"]
args:
  name: {type: text, pattern: "[^ ]+", default: model}
  count: {type: integer, min: -5, max: 100, default: 1}
  part: {type: number, min: 0, max: 1, default: 0.5}
  how: {type: choice, of: [fast, "true"], default: fast}
  file: {type: path, default: ""}
environment: {OMP_NUM_THREADS: "1", MODE: fixed}
image: registry/serve:1
health: {path: "/models/{name}/ready"}
warmUp: {path: /warm, method: POST, body: '{"model": "{name}", "n": {count}, "more": {"a": {}}}'}
setBatch: {path: "/{name}/batch", method: PUT, body: '{"name": "{name}", "batch": {batch}, "ms": {batchTimeoutMs}}'}
"""
BUILTIN = Builtin("copy-1", "GPU-7", port=8000, batch=4, batch_timeout_ms=2.5)


def template(models: Path, text: str = TEXT) -> Template:
    return Template("mine", parse(text, "mine", "mine.yaml"), models)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "resnet").mkdir(parents=True)
    (folder / "resnet" / "model.onnx").write_text("x")
    (tmp_path / "secret").write_text("x")
    return folder


def refused(models: Path, **args: object) -> ArgumentRefused:
    made = fill(template(models), args, BUILTIN)
    assert isinstance(made, ArgumentRefused), made
    HeldBack("i1", made.reason, made.message)
    return made


def test_each_argument_becomes_a_part_of_one_word(models: Path) -> None:
    args = {"name": "a;b|$(c)&&`d`*", "count": 7.0, "part": 1e-5, "how": True, "file": "resnet/model.onnx"}
    made = fill(template(models), args, BUILTIN)
    assert isinstance(made, Filled)
    assert made.argv[1:] == (
        "-m", "serve", "--name=a;b|$(c)&&`d`*", "a;b|$(c)&&`d`*", "--n=7", "--x=0.00001", "--how=true",
        str(models / "resnet" / "model.onnx"), "--gpu", "GPU-7",
    )  # fmt: skip
    assert made.environment == {"OMP_NUM_THREADS": "1", "MODE": "fixed"}
    assert made.image == "registry/serve:1"
    assert made.folders == (f"{models}:ro",)


def test_probes_hold_arguments_as_data(models: Path) -> None:
    made = fill(template(models), {"name": 'a/../b"},{batch}'}, BUILTIN)
    assert isinstance(made, Filled)
    assert made.health and made.warm_up and made.set_batch
    assert made.health.path == "/models/a%2F..%2Fb%22%7D%2C%7Bbatch%7D/ready"
    assert json.loads(made.warm_up.body) == {"model": 'a/../b"},{batch}', "n": 1, "more": {"a": {}}}
    # Values filled in at each use land in their own places only.
    assert made.set_batch.body.count("{batch}") == 1
    live = made.set_batch.body.replace("{batch}", "8").replace("{batch_timeout_ms}", "2.5")
    assert json.loads(live) == {"name": 'a/../b"},{batch}', "batch": 8, "ms": 2.5}


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "PATH", "PYTHONPATH", "OMP_NUM_THREADS", "environment", "argv",
     "image", "command", "python", "port", "gpu", "copy", "batch", "", "a\nb", "x" * 10_000],
)  # fmt: skip
def test_case_27_no_argument_reaches_command_image_environment_or_what_the_agent_fills_in(
    models: Path, name: str
) -> None:
    made = refused(models, **{name: "x"})
    assert made.reason == "unknown_argument"
    assert "count, file, how, name, part" in made.message


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"name": 5}, "wrong_type"),
        ({"name": ["a"]}, "wrong_type"),
        ({"name": ""}, "out_of_range"),
        ({"name": "a b"}, "out_of_range"),
        ({"name": "a\x00b"}, "out_of_range"),
        ({"name": "a\n"}, "out_of_range"),
        ({"name": "a" * 201}, "out_of_range"),
        ({"name": "--exec=/bin/sh"}, "out_of_range"),
        ({"count": "7"}, "wrong_type"),
        ({"count": True}, "wrong_type"),
        ({"count": 1.5}, "wrong_type"),
        ({"count": float("nan")}, "wrong_type"),
        ({"count": 101}, "out_of_range"),
        ({"part": float("inf")}, "wrong_type"),
        ({"part": -0.1}, "out_of_range"),
        ({"how": "slow"}, "out_of_range"),
        ({"how": False}, "out_of_range"),
        ({"file": 5}, "wrong_type"),
        ({"file": "a\x00b"}, "wrong_type"),
        ({"file": "nothing"}, "no_such_file"),
        ({"file": "a" * 900}, "no_such_file"),
        ({"file": "/etc/passwd"}, "outside_root"),
        ({"file": "~root"}, "outside_root"),
        ({"file": "../secret"}, "outside_root"),
        ({"file": "resnet/../../secret"}, "outside_root"),
        ({"file": "resnet/.."}, "outside_root"),
    ],
)  # fmt: skip
def test_case_28_a_value_that_is_not_allowed_is_refused_by_name(
    models: Path, args: dict[str, object], reason: str
) -> None:
    made = refused(models, **args)
    assert (made.reason, made.field) == (reason, next(iter(args)))
    assert made.field in made.message


def test_an_argument_without_a_default_must_be_given(models: Path) -> None:
    text = "argv: [serve, '{name}']\nargs: {name: {type: text, pattern: x}}"
    made = fill(template(models, text), {}, BUILTIN)
    assert isinstance(made, ArgumentRefused)
    assert (made.reason, made.field) == ("missing_argument", "name")


def test_case_28_links_are_followed_and_may_not_lead_out_of_the_root(models: Path) -> None:
    (models / "inside").symlink_to("resnet")
    (models / "outside").symlink_to("../secret")
    (models / "up").symlink_to("..")
    (models / "loop").symlink_to("loop")
    (models / "gone").symlink_to("nothing")
    made = fill(template(models), {"file": "inside/model.onnx"}, BUILTIN)
    assert isinstance(made, Filled)
    assert made.argv[8] == str(models / "resnet" / "model.onnx")
    assert refused(models, file="outside").reason == "outside_root"
    assert refused(models, file="up/secret").reason == "outside_root"
    assert refused(models, file="loop").reason == "no_such_file"
    assert refused(models, file="gone").reason == "no_such_file"


def test_a_root_that_is_a_link_is_where_it_leads(models: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(models)
    made = fill(template(tmp_path / "link"), {"file": "resnet"}, BUILTIN)
    assert isinstance(made, Filled)
    assert made.argv[8] == str(models / "resnet")


def test_what_is_neither_file_nor_folder_is_refused(models: Path) -> None:
    os.mkfifo(models / "pipe")
    assert refused(models, file="pipe").reason == "no_such_file"


NEW = "argv: [job, '--to={to}']\nargs: {to: {type: path, root: saved, new: true}}"


def test_case_28_a_new_file_needs_its_folder_and_stays_under_its_root(models: Path) -> None:
    saved = models / "saved"
    saved.mkdir()
    (saved / "old").write_text("x")
    (saved / "link").symlink_to(models / "resnet" / "model.onnx")
    (saved / "up").symlink_to("..")

    def to(value: str) -> str:
        made = fill(template(models, NEW), {"to": value}, BUILTIN)
        if isinstance(made, ArgumentRefused):
            return made.reason
        assert made.folders == (str(saved),)
        return made.argv[1]

    assert to("new") == f"--to={saved}/new"
    assert to("old") == f"--to={saved}/old"
    assert to("link") == "outside_root"
    assert to("up/new") == "outside_root"
    assert to("../new") == "outside_root"
    assert to("no/new") == "no_such_file"
    assert to(".") == "no_such_file"


VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["../x", "/etc/passwd", "--a", "-", "{python}", "{batch}", "$(x)", "a b", "", "resnet", "%s", "\x00"]
    ),
    st.integers(),
    st.floats(),
    st.booleans(),
)
NAMES = st.sampled_from(["name", "count", "part", "how", "file", "LD_PRELOAD", "python", "argv"])


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Template, Filled]:
    models = tmp_path_factory.mktemp("models")
    (models / "resnet").mkdir()
    made = fill(template(models), {}, BUILTIN)
    assert isinstance(made, Filled)
    return template(models), made


@pytest.mark.slow
@settings(max_examples=scaled(10_000, 500))
@given(args=st.dictionaries(NAMES, VALUES, max_size=5))
def test_case_27_arguments_change_only_their_places(
    filled_once: tuple[Template, Filled], args: dict[str, object]
) -> None:
    made, plain = fill(filled_once[0], args, BUILTIN), filled_once[1]
    if isinstance(made, ArgumentRefused):
        assert made.field
        HeldBack("i1", made.reason, made.message)
        return
    assert args.keys() <= filled_once[0].form.args.keys()
    assert len(made.argv) == len(plain.argv)
    assert made.environment == plain.environment
    assert made.image == plain.image
    for word, form, default in zip(made.argv, filled_once[0].form.argv, plain.argv, strict=True):
        before, _, after = form.partition("{") if "{" in form else (form, "", "")
        assert word.startswith(before)
        assert "\x00" not in word
        if not set(PLACEHOLDER.findall(form)) & args.keys():
            assert word == default
        elif not before:
            assert not word.startswith("-") or form == "{count}"
        assert not after.partition("}")[2] or word.endswith(after.partition("}")[2])
