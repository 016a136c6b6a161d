"""A template file with forbidden content, or that others may write, is refused by file and field."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.templates.reading import MODELS, TemplateError, read, read_one
from agents.templates.strict_file import MOST_BYTES

GOOD = """
argv: ["{python}", serve, "--model={model}"]
args:
  model: {type: text, pattern: "[a-z]+"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "templates"
    made.mkdir()
    return made


def fault(folder: Path, text: str, name: str = "mine.yaml") -> str:
    (folder / name).write_text(text)
    with pytest.raises(TemplateError) as raised:
        read(folder)
    assert len(raised.value.faults) == 1, raised.value.faults
    assert raised.value.faults[0].startswith(str(folder / name))
    return raised.value.faults[0]


def test_an_operators_template_joins_the_shipped_ones_and_wins_by_name(folder: Path) -> None:
    (folder / "mine.yaml").write_text(GOOD)
    (folder / "vllm.yaml").write_text(GOOD)
    (folder / "notes.txt").write_text("not a template")
    templates = read(folder)
    assert {"gpuwright-serve", "mine", "triton", "vllm"} <= templates.keys()
    assert templates["vllm"].form.argv[1] == "serve"
    assert list(templates) == sorted(templates)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + "shell: true", "unknown field `shell`"),
        (GOOD + "startSeconds: soon", "$.startSeconds"),
        (GOOD + "startSeconds: .nan", "startSeconds"),
        (GOOD + "processes: 0", "$.processes"),
        (GOOD + "checkpointSignal: SIGKILL", "$.checkpointSignal"),
        (GOOD + "health: {path: healthz}", "$.health.path"),
        (GOOD + "health: {path: /, method: DELETE}", "$.health.method"),
        (GOOD + "metrics: {kind: other}", "$.metrics.kind"),
        (GOOD + "image: 'x; rm -rf /'", "$.image"),
        (GOOD + "environment: {A: 1}", "$.environment"),
        (GOOD + "environment: {'A B': x}", "$.environment"),
        (GOOD + "environment: {CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: '100'}", "environment.CUDA_MPS_ACTIVE_THREAD"),
        (GOOD + "environment: {LD_PRELOAD: /x.so}", "environment.LD_PRELOAD"),
        (GOOD + "environment: {CUDA_VISIBLE_DEVICES: '0'}", "environment.CUDA_VISIBLE_DEVICES"),
        (GOOD + "setBatch: {path: /batch, method: PUT}", "neither path nor body contains {batch}"),
        (GOOD + "setBatch: {path: '/{batch}/{other}'}", "{other}"),
        (GOOD + "argv: [x]", "duplicate keys"),
        (GOOD + "  model: {type: text, pattern: x}", "duplicate keys"),
        ("args: {}", "missing required field `argv`"),
        ("argv: []", "$.argv"),
        ("argv: [serve, 5]", "$.argv[1]"),
        ("argv: ['']", "argv[0]"),
        ("argv: ['{model}']\nargs: {model: {type: text, pattern: x}}", "argv[0]"),
        ("argv: [x, '{nobody}']", "{nobody}"),
        ("argv: [x, '{']", "unmatched brace"),
        ("argv: [x]\nargs: {model: {type: text, pattern: x}}", "args.model: no placeholder"),
        ("argv: [x, '{port}']\nargs: {port: {type: integer, min: 1, max: 2}}", "args.port: {port} is filled in"),
        ("argv: [x, '{m}']\nargs: {m: {type: text, pattern: '['}}", "args.m.pattern"),
        ("argv: [x, '{m}']\nargs: {m: {type: text}}", "missing required field `pattern`"),
        ("argv: [x, '{m}']\nargs: {m: {type: anything}}", "$.args"),
        ("argv: [x, '{m}']\nargs: {m: {type: integer, min: 5, max: 2}}", "args.m: min 5 is above max 2"),
        ("argv: [x, '{m}']\nargs: {m: {type: integer, min: 1, max: 2, default: 3}}", "args.m.default"),
        ("argv: [x, '{m}']\nargs: {m: {type: choice, of: [a], default: b}}", "args.m.default"),
        ("argv: [x, '{m}']\nargs: {m: {type: path, default: ../x}}", "args.m.default"),
        ("argv: &a [x]\nimage: *a", "aliases are not allowed"),
        ("argv: [!!python/object/apply:os.system [id]]", "could not determine a constructor"),
        ("[" * 5000, ""),
        ("- x", "Expected `object`"),
        ("", "Expected `object`"),
        ("argv: [x\x00]", ""),
        ("argv: [\"x\\n\"]", "$.argv[0]"),
        ("#" * (MOST_BYTES + 1), "more than"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say_is_named(folder: Path, text: str, says: str) -> None:
    assert says in fault(folder, text)


def test_what_is_not_utf8_is_refused(folder: Path) -> None:
    (folder / "mine.yaml").write_bytes(b"argv: [\xff]")
    with pytest.raises(TemplateError, match="not UTF-8"):
        read(folder)


@pytest.mark.parametrize("name", ["Mine.yaml", "-mine.yaml", "my mine.yaml", "m" * 64 + ".yaml"])
def test_a_template_is_named_like_everything_else(folder: Path, name: str) -> None:
    assert "DNS label" in fault(folder, GOOD, name)


def test_a_file_that_anybody_may_write_is_refused(folder: Path) -> None:
    (folder / "mine.yaml").write_text(GOOD)
    (folder / "mine.yaml").chmod(0o666)
    with pytest.raises(TemplateError, match=r"mine.yaml is writable by others than its owner \(mode 666\)"):
        read(folder)


def test_a_folder_that_anybody_may_write_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(TemplateError, match="is writable by others"):
        read(folder)


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text(GOOD)
    (folder / "mine.yaml").symlink_to(tmp_path / "outside.yaml")
    with pytest.raises(TemplateError, match="outside the folder"):
        read(folder)
    (folder / "mine.yaml").unlink()
    (folder / "real.yaml").write_text(GOOD)
    (folder / "mine.yaml").symlink_to("real.yaml")
    assert {"mine", "real"} <= read(folder).keys()


def test_what_is_no_file_is_refused_without_waiting_for_it(folder: Path) -> None:
    os.mkfifo(folder / "mine.yaml")
    with pytest.raises(TemplateError, match="not a regular file"):
        read(folder)
    (folder / "mine.yaml").unlink()
    (folder / "mine.yaml").mkdir()
    with pytest.raises(TemplateError, match="Is a directory"):
        read(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="nowhere: No such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(TemplateError, match="No such file"):
        read_one(tmp_path / "nowhere.yaml", MODELS)


def test_every_bad_file_is_named_at_once(folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / f"{name}.yaml").write_text("argv: []" if name != "b" else GOOD)
    with pytest.raises(TemplateError) as raised:
        read(folder)
    assert [Path(fault.partition(":")[0]).stem for fault in raised.value.faults] == ["a", "c"]
