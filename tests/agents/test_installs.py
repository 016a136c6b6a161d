"""A message that tells how to install something names what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.contract.installs import say_install, spell_install


@pytest.mark.parametrize(
    ("name", "noted", "said"),
    [
        ("gpuwright-0.1.0-py3-none-any.whl", {"archive_info": {}}, "pip install '{path}[planner]'"),
        ("check out", {"dir_info": {}}, "pip install '{path}[planner]'"),
        ("checkout", {"dir_info": {"editable": True}}, "pip install -e '{path}[planner]'"),
    ],
)
def test_an_extra_comes_from_where_the_install_came_from(tmp_path: Path, name: str, noted: object, said: str) -> None:
    path = tmp_path / name
    direct_url = json.dumps({"url": path.as_uri(), **noted})  # type: ignore[dict-item]
    assert spell_install("planner", "0.1.0", direct_url).startswith(f"pip install './{name}[planner]' beside ")
    path.mkdir()
    assert spell_install("planner", "0.1.0", direct_url) == said.format(path=path)


def test_what_an_index_has_is_named_with_its_version() -> None:
    assert spell_install("up", "0.1.0", None) == "pip install 'gpuwright[up]==0.1.0'"


def test_this_checkout_says_how_it_gets_more() -> None:
    words = say_install("parquet")
    assert words.endswith(("[parquet]'", "in a checkout of gpuwright"))
