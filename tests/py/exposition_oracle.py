"""Reads pages with prometheus-client, for as long as it is asked to.

A line of JSON comes in, [[reader, text], ...], and one goes out: for each page an object with "error",
or with "families" ([name, type, unit, help]) and "samples" ([name, {label: value}, value as text,
exemplar]); an exemplar is null or [{label: value}, value as text, time as text or null]. The reader
is "classic" or "open".

Of classic text the samples are given as its lines are read: later that reader puts `_total` behind the
names of counters that have none.
"""

import json
import sys

from prometheus_client import parser
from prometheus_client.openmetrics import parser as open_parser

lines = []
read_line = parser._parse_sample


def noted(text):
    sample = read_line(text)
    lines.append(sample)
    return sample


parser._parse_sample = noted


def number(value):
    return repr(float(value))


def exemplar(of):
    if of is None:
        return None
    time = None if of.timestamp is None else number(of.timestamp)
    return [of.labels, number(of.value), time]


def read(reader, text):
    lines.clear()
    by = open_parser if reader == "open" else parser
    families = list(by.text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples] if by is open_parser else lines
    return {
        "families": [[f.name, f.type, f.unit, f.documentation] for f in families],
        "samples": [[s.name, s.labels, number(s.value), exemplar(s.exemplar)] for s in samples],
    }


def answer(reader, text):
    try:
        return read(reader, text)
    except Exception as error:  # Whatever stops it, it does not read this page.
        return {"error": repr(error)}


for request in sys.stdin.buffer:
    print(json.dumps([answer(*page) for page in json.loads(request)]), flush=True)
