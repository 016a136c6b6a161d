"""Labels that Prometheus renamed: where a scrape job sets a label, that of the series becomes `exported_...`."""

from __future__ import annotations

from clusters.metrics.asking import MetricsReader
from clusters.metrics.prometheus import PrometheusFailed

RENAMED = "exported_"


def match_own(*labels: str) -> str:
    """Returns the matchers of series whose labels are their own."""
    return ",".join(f'{RENAMED}{label}=""' for label in labels)


def check_renamed(reader: MetricsReader, metric: str, exporter: str, *labels: str) -> None:
    """Raises PrometheusFailed where labels of a metric are renamed now: theirs are of the exporter, for all series."""
    renamed = [RENAMED + label for label in labels if reader.read_samples(f'count({metric}{{{RENAMED}{label}!=""}})')]
    if renamed:
        raise PrometheusFailed(
            f"Prometheus has labels of {metric} as {' and '.join(renamed)}, since its scrape job sets its own",
            f"set honor_labels: true in the scrape of {exporter}",
        )
