"""Reading keeps what was written and refuses what is too much, in YAML and JSON alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.manifests.faults import ManifestsRefused
from app.manifests.reader import API, OFFLINE, InputLimits, read

WHOLE = st.integers(-(10**15), 10**15)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SCALAR = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
DOCUMENT = st.dictionaries(TEXT, VALUE, min_size=1, max_size=5)


class Quoting(yaml.SafeDumper):
    """Quotes what YAML 1.1 or 1.2 might take for something other than text."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@pytest.mark.slow
@given(DOCUMENT)
def test_json_is_read_as_it_was_written(value: dict[str, Any]) -> None:
    assert [document.value for document in read(json.dumps(value).encode(), "json")] == [value]


@pytest.mark.slow
@given(DOCUMENT)
def test_json_is_read_the_same_as_yaml(value: dict[str, Any]) -> None:
    data = json.dumps(value, ensure_ascii=False).encode()
    assert read(data, "yaml") == read(data, "json")


@pytest.mark.slow
@given(st.lists(DOCUMENT, min_size=1, max_size=3))
def test_yaml_is_read_as_it_was_written(values: list[dict[str, Any]]) -> None:
    data = yaml.dump_all(values, Dumper=Quoting, allow_unicode=False).encode()
    documents = read(data, "yaml", source="a.yaml")
    assert [document.value for document in documents] == values
    assert [document.source for document in documents] == [f"a.yaml#{n + 1}" for n in range(len(values))]


@pytest.mark.slow
@given(st.binary(max_size=200), st.sampled_from(["yaml", "json", "files"]))
def test_no_bytes_raise_anything_but_refused(data: bytes, media: Any) -> None:
    refuses_or_reads(data, media)


@pytest.mark.slow
@given(
    st.text(st.sampled_from("{}[]:,-?&*!|>'\"%@`#~<. \n\t1eaA\\u0d8"), max_size=60), st.sampled_from(["yaml", "json"])
)
def test_no_syntax_raises_anything_but_refused(text: str, media: Any) -> None:
    refuses_or_reads(text.encode(), media)


def refuses_or_reads(data: bytes, media: Any) -> None:
    try:
        assert read(data, media, API)
    except ManifestsRefused as refused:
        assert refused.faults
        assert all(str(fault).isprintable() for fault in refused.faults)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("2026-12-01", "2026-12-01"),
        ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("+12", 12),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ('"8"', "8"),
        ("1.2.3", "1.2.3"),
        ("-", [None]),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(written: str, meant: Any) -> None:
    (document,) = read(f"a:\n  {written}".encode(), "yaml")
    assert document.value == {"a": meant}


def test_numbers_as_keys_become_texts() -> None:
    (document,) = read(b"{8: 1, 10.0: 2, 0.5: 3, '1e1': 4}", "yaml")
    assert document.value == {"8": 1, "10": 2, "0.5": 3, "1e1": 4}


def test_an_empty_document_is_skipped_and_still_counted_in_the_names() -> None:
    found = read(b"---\n---\na: 1\n---\n# nothing\n---\nb: 2\n", "yaml", source="f")
    assert [document.source for document in found] == ["f#2", "f#4"]


def test_a_list_is_several_manifests() -> None:
    assert [d.value for d in read(b"- {a: 1}\n- {b: 2}", "yaml")] == [{"a": 1}, {"b": 2}]


def test_a_byte_order_mark_is_no_harm() -> None:
    assert read(b"\xef\xbb\xbfa: 1", "yaml")[0].value == {"a": 1}
    assert read(b'\xef\xbb\xbf{"a": 1}', "json")[0].value == {"a": 1}


def test_an_alias_is_what_it_names() -> None:
    assert read(b"a: &x {b: 1}\nc: *x", "yaml")[0].value == {"a": {"b": 1}, "c": {"b": 1}}


def test_an_alias_counts_all_that_it_names() -> None:
    text = b"a: &x [1, 2, 3]\nb: [*x, *x]"  # 4 + 1 + 8, and the mapping
    assert read(text, "yaml", InputLimits(100, 14))
    with pytest.raises(ManifestsRefused, match="more than 13 values"):
        read(text, "yaml", InputLimits(100, 13))


def test_aliases_cannot_nest_deeper_than_anything_else() -> None:
    lines = ["- &a0 [1]"] + [f"- &a{n} [*a{n - 1}]" for n in range(1, 70)]
    with pytest.raises(ManifestsRefused, match="nested deeper"):
        read("\n".join(lines).encode(), "yaml", OFFLINE)


def test_aliases_of_a_long_text_count_its_characters() -> None:
    data = b"- &a " + b"x" * 1000 + b"\n- *a" * 2000
    with pytest.raises(ManifestsRefused):
        read(data, "yaml", InputLimits(100_000, 10_000))


@pytest.mark.parametrize("media", ["yaml", "json"])
def test_values_are_counted_the_same_in_both(media: Any) -> None:
    data = b'{"a": [1, [], {}, {"b": "[,,,"}]}'  # the root, a list, 1, [], {}, {b}, a text
    assert read(data, media, InputLimits(100, 7))
    with pytest.raises(ManifestsRefused, match="more than 6 values"):
        read(data, media, InputLimits(100, 6))


@pytest.mark.parametrize("media", ["yaml", "json"])
def test_sixty_four_levels_are_read_and_one_more_is_not(media: Any) -> None:
    assert read(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}", media)
    with pytest.raises(ManifestsRefused, match="nested deeper"):
        read(b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", media)


@pytest.mark.parametrize(
    ("data", "place", "says"),
    [
        (b'{"a": 1,\n "a": 2}', "f.json:2:2", "appears twice"),
        (b'{"a": {"b": 1},\n "c": {"b": 1,\n\n  "b": 2}}', "f.json:4:3", "appears twice"),
        (b'{"a": NaN}', "f.json", "NaN"),
        (b'{"a": -Infinity}', "f.json", "-Infinity"),
        (b'{"a": 1e400}', "f.json", "too large"),
        (b'{"a":\n ' + b"9" * 5000 + b"}", "f.json:2:2", "5000 characters"),
        (b'{"a": "\\ud800"}', "f.json", "surrogate"),
        (b'{"a\\u0000": 1}', "f.json", "NUL"),
        (b'{"a": 1,}', "f.json:1:9", "not JSON"),
        (b"{'a': 1}", "f.json:1:2", "not JSON"),
        (b'{"a": 1} {"b": 2}', "f.json:1:10", "not JSON"),
        (b"", "f.json", "no manifest"),
    ],
)
def test_json_that_is_not_quite_json_is_refused_where_it_is_wrong(data: bytes, place: str, says: str) -> None:
    with pytest.raises(ManifestsRefused) as refused:
        read(data, "json", API, "f.json")
    (fault,) = refused.value.faults
    assert fault.document == place
    assert says in fault.message


def test_surrogate_pairs_are_characters() -> None:
    for media in ("yaml", "json"):
        assert read(b'{"a": "\\ud83d\\ude00"}', media)[0].value == {"a": "\N{GRINNING FACE}"}


def envelope(**files: str) -> bytes:
    listed = [{"name": name.replace("_", "."), "text": text} for name, text in files.items()]
    return json.dumps({"files": listed}).encode()


def test_several_files_are_read_under_their_own_names() -> None:
    documents = read(envelope(a_yaml="x: 1\n---\ny: 2", b_json='[{"z": 3}]'), "files")
    assert [document.source for document in documents] == ["a.yaml#1", "a.yaml#2", "b.json#1"]


def test_faults_of_several_files_come_together() -> None:
    with pytest.raises(ManifestsRefused) as refused:
        read(envelope(a_yaml="x: [", b_json="{", c_yaml=""), "files")
    assert [fault.document.split(":")[0] for fault in refused.value.faults] == ["a.yaml", "b.json", "c.yaml"]


def test_several_files_share_one_limit() -> None:
    one = "[" + ",".join("1" for _ in range(30)) + "]"
    assert read(envelope(a_json=one), "files", InputLimits(10_000, 50))
    with pytest.raises(ManifestsRefused, match="values"):
        read(envelope(a_json=one, b_json=one), "files", InputLimits(10_000, 50))


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"files": {}}', b'{"files": [1]}', b'{"files": [{"name": "a"}]}'])
def test_an_envelope_out_of_order_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestsRefused, match="name"):
        read(data, "files")


@pytest.mark.parametrize(
    ("text", "says"), [("a:\n  b: x\n   c: y\n", "indented too far"), ("a:\n\tb: x\n", "indent with spaces")]
)
def test_a_slip_of_the_indentation_is_told_as_one(text: str, says: str) -> None:
    with pytest.raises(ManifestsRefused, match=says):
        read(text.encode(), "yaml")
