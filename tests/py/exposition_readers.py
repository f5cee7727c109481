#!/usr/bin/env python3
"""Holds the merged pages that `cargo test --test exposition` leaves behind against other readers.

    tests/py/exposition_readers.py MERGED ORIGINALS [PROMTOOL]

MERGED is target/tmp/exposition, ORIGINALS the folder of real pages. Each merged page must hold, for
prometheus_client's reader of classic text, the very samples of the original with `source` added; and
`promtool check metrics` must read it (its exit code 3 is about style alone).
"""
import collections
import pathlib
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families


def samples(text, source=None):
    """Every sample of a page, counted; of a merged one those of `source`, without that label."""
    found = collections.Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if source is not None:
                if labels.pop("source") != source:
                    continue
                if "exported_source" in labels:
                    labels["source"] = labels.pop("exported_source")
            # NaN is not equal to itself, its name is.
            found[sample.name, frozenset(labels.items()), repr(sample.value)] += 1
    return found


def main():
    merged, originals = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    promtool = sys.argv[3] if len(sys.argv) > 3 else None
    failures = pages = total = 0
    for original in sorted(originals.glob("*.prom")):
        before = samples(original.read_text())
        after = samples((merged / original.name).read_text(), source=original.stem)
        pages += 1
        total += sum(before.values())
        if before != after:
            failures += 1
            print(f"{original.name}: lost {before - after}, gained {after - before}")
    everything = samples((merged / "all.prom").read_text())
    print(f"{pages} pages, {total} samples, {sum(everything.values())} of them in the page of all")
    if promtool:
        for page in sorted(merged.glob("*.prom")):
            with page.open() as text:
                run = subprocess.run([promtool, "check", "metrics"], stdin=text, capture_output=True, text=True)
            if run.returncode not in (0, 3):
                failures += 1
                print(f"{page.name}: promtool {run.returncode}: {run.stderr[:300]}")
    sys.exit(1 if failures or not pages else 0)


if __name__ == "__main__":
    main()
