"""Reads a page of classic text with prometheus-client: read_page.py FILE

Prints a line of JSON per sample: [name, [[label, value], ...sorted], value as text].
"""

import json
import sys

from prometheus_client.parser import text_string_to_metric_families

with open(sys.argv[1], encoding="utf-8", newline="") as file:
    text = file.read()
for family in text_string_to_metric_families(text):
    for sample in family.samples:
        labels = sorted([name, value] for name, value in sample.labels.items())
        print(json.dumps([sample.name, labels, repr(float(sample.value))]))
