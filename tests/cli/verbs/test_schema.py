"""`gpuwright schema` prints what an editor reads, and needs no server."""

from __future__ import annotations

import json

import pytest

from cli.main import main


def test_the_schema_of_one_kind_and_of_all_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert len(json.loads(capsys.readouterr().out)["allOf"]) == 10
    assert main(["schema", "svc"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["kind"]["enum"] == ["Service"]
    assert main(["schema", "servce"]) == 2
    assert "did you mean service" in capsys.readouterr().err
