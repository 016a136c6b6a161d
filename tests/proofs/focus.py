"""The export in FOCUS's columns, checked by the validator of the FinOps Foundation in an environment of its own.

python -m tests.proofs.focus FOLDER     makes an environment there, which takes a minute, and uses it again

The only version that runs on Python 3.11 knows FOCUS 1.0, and calls four columns by names that no version has; these
are renamed for it. Of two of its rules it says that it could not check them: they fail on every file.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from app.reports import sheets
from app.store.money.report_queries import ReportQuery

PACKAGES = ("focus-validator==1.0.0", "multimethod<1.11", "sqlglot<19", "pydantic<2.12")
RENAMED = {
    "InvoiceIssuerName": "InvoiceIssuer", "ProviderName": "Provider", "PublisherName": "Publisher",
    "ResourceId": "ResourceID",
}  # fmt: skip
ITS_OWN = {"BillingCurrency_IsCurrencyCode": "FileNotFoundError", "SkuPriceId_Nullable": "KeyError"}
DAY = datetime(2026, 3, 28, tzinfo=UTC)


def make_rows() -> list[dict[str, Any]]:
    """Returns rows of the ledger of each kind and purchase, also one without a region and one without hours."""
    row = {
        "period": DAY, "tenant": "shop", "service": "search", "job": "", "node": "node-1", "gpu_type": "a100",
        "region": "eu", "purchase": "owned", "kind": "used", "cost": Decimal("1.234567891"), "gpu_hours": Decimal("7"),
    }  # fmt: skip
    changes: list[Mapping[str, Any]] = [
        {}, {"purchase": "reserved"}, {"purchase": "onDemand"}, {"purchase": "spot", "region": ""},
        {"service": "", "job": "train"}, {"service": "", "tenant": "", "kind": "idle"},
        {"cost": Decimal(0), "gpu_hours": Decimal(0)},
    ]  # fmt: skip
    return [{**row, **change} for change in changes]


def find_failures(python: Path, lines: Sequence[str]) -> dict[str, str]:
    """Returns the rules that fail, each with what the validator says of it."""
    names, *rows = csv.reader(lines)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name, "focus.csv")
        with file.open("w", newline="") as written:
            csv.writer(written).writerows([[RENAMED.get(column, column) for column in names], *rows])
        program = "from focus_validator.main import main; main()"
        words = [str(python), "-c", program, "--data-file", str(file), "--validate-version", "1.0"]
        output = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    assert "Validation" in output, output[-2000:]
    return dict(re.findall(r"^(\w+) failed:\n(.*?)\n\n", f"{output}\n\n", re.MULTILINE | re.DOTALL))


def main() -> int:
    python = Path(sys.argv[1], "bin", "python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", sys.argv[1]], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    query = ReportQuery("cost", sheets.FOCUS_BY, "day", DAY, DAY, zone="UTC")
    rows = make_rows()
    failures = find_failures(python, "".join(sheets.focus(query, rows, "EUR")).splitlines())
    ours = {rule: said for rule, said in failures.items() if ITS_OWN.get(rule, "nothing") not in said}
    for rule, said in ours.items():
        print(f"{rule}: {said}")
    print(f"{len(rows)} charges: {len(ours)} rules fail, and {len(failures) - len(ours)} that it cannot check")
    return int(bool(ours))


if __name__ == "__main__":
    sys.exit(main())
