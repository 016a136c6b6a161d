"""A key that signs images, as an operator makes it with openssl."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path


class SigningKey:
    """An Ed25519 key in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._file, self._text = folder / "key.pem", folder / "image"
        self._openssl("genpkey", "-algorithm", "ed25519", "-out", str(self._file))
        lines = self._openssl("pkey", "-in", str(self._file), "-pubout").decode().splitlines()
        self.public = lines[1]

    def sign_image(self, image: str) -> str:
        """Returns the signature of an image as a manifest has it."""
        return self.sign(f"gpuwright-image-v1:{image}")

    def sign(self, text: str) -> str:
        """Returns the signature of a text."""
        self._text.write_text(text)
        signature = self._openssl("pkeyutl", "-sign", "-inkey", str(self._file), "-rawin", "-in", str(self._text))
        return base64.b64encode(signature).decode()

    def _openssl(self, *words: str) -> bytes:
        return subprocess.run(["openssl", *words], check=True, capture_output=True).stdout
