"""Reads a page with prometheus-client: read_page.py FILE [openmetrics]

In classic text, or in OpenMetrics with its own, strict parser. Prints a line of JSON per sample:
[name, [[label, value], ...sorted], value as text].
"""

import json
import sys

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

reader = openmetrics if sys.argv[2:] == ["openmetrics"] else parser
with open(sys.argv[1], encoding="utf-8", newline="") as file:
    text = file.read()
for family in reader.text_string_to_metric_families(text):
    for sample in family.samples:
        labels = sorted([name, value] for name, value in sample.labels.items())
        print(json.dumps([sample.name, labels, repr(float(sample.value))]))
