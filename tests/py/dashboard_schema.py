"""Checks a dashboard against the schema of grafana-foundation-sdk: dashboard_schema.py FILE

Reads it into the SDK's objects, which know what Grafana's schema knows, and writes them again: what is
not there afterwards, or has another value, is a field that the schema has no place for. Prints how many
panels there are.
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(ours, theirs, path=""):
    """Paths of what is in `ours` and not, or otherwise, in `theirs`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                # What is empty may be left out.
                if value not in (None, [], {}, ""):
                    yield f"{path}.{key}: {value!r} is unknown"
            else:
                yield from lost(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} items became {len(theirs)}"
        for number, (one, other) in enumerate(zip(ours, theirs)):
            yield from lost(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    ours = json.load(file)
theirs = json.loads(json.dumps(Dashboard.from_json(ours), cls=JSONEncoder))
problems = list(lost(ours, theirs))
# That an unknown field is noticed at all.
spoilt = json.loads(json.dumps(ours))
spoilt["panels"][1]["fieldConfig"]["defaults"]["noSuchField"] = 1
spoilt["panels"][1]["optoins"] = {"a": 1}
seen = list(lost(spoilt, json.loads(json.dumps(Dashboard.from_json(spoilt), cls=JSONEncoder))))
if len(seen) - len(problems) != 2:
    problems.append(f"two unknown fields were not noticed: {seen}")
for panel in ours["panels"]:
    if panel["type"] != "row" and type(Dashboard.from_json({"panels": [panel]}).panels[0].options) is dict:
        problems.append(f"{panel['title']}: no options of a panel {panel['type']} are known")
if problems:
    sys.exit("\n".join(problems))
print(sum(panel["type"] != "row" for panel in ours["panels"]), "panels")
