"""What a scaler's process reads of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.scaler.reaching import LookFailed, read_token


@pytest.mark.parametrize("held", [b"SE\nCRET", b"SE CRET", "SÉCRET".encode("latin-1"), b"\xff\xfeSECRET", b""])
def test_a_file_without_one_token_is_named_and_its_text_is_not_repeated(held: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    with pytest.raises(LookFailed, match=r"token's file .* does not hold one token") as refused:
        read_token(file, "prometheus")
    assert "CRET" not in str(refused.value)
    file.write_text("secret\n")
    assert read_token(file, "prometheus") == "secret"
    assert read_token(None, "prometheus") == ""
    with pytest.raises(LookFailed, match="cannot be read: No such file"):
        read_token(tmp_path / "absent", "prometheus")
