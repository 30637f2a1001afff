"""A source with two hooks to try ingest with: orders of a shop, which the demo ingests."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

TOTAL, BATCH_SIZE = 400, 100
FETCH = """\
import json, os
path = os.environ["PADDOCK_SESSION"]
after = json.load(open(path)) if os.path.exists(path) else 0
last = min(after + int(os.environ["PADDOCK_LIMIT"]), TOTAL)
with open(os.environ["PADDOCK_OUT"] + "/records.jsonl", "w") as out:
    for n in range(after + 1, last + 1):
        order = {"number": n, "customer": f"c{n % 17}", "amount": f"{n * 7 % 400 - 10}.50"}
        out.write(json.dumps({"id": n, "data": order}) + "\\n")
with open(os.environ["PADDOCK_OUT"] + "/session.json", "w") as out:
    json.dump({"session": last, "has_more": last < TOTAL}, out)
print(f"Fetched orders {after + 1} to {last}.")
""".replace("TOTAL", str(TOTAL))
CHECK = """\
import json, os
out = {name: open(os.environ["PADDOCK_OUT"] + f"/{name}.jsonl", "w") for name in ("features", "rejections")}
for line in open(os.environ["PADDOCK_IN"] + "/records.jsonl"):
    order = json.loads(line)
    if float(order["data"]["amount"]) > 0:
        out["features"].write(json.dumps({"id": order["id"], "features": {}}) + "\\n")
    else:
        out["rejections"].write(json.dumps({"id": order["id"], "reason": "the amount is not positive"}) + "\\n")
"""
REGION = """\
import json, os
with open(os.environ["PADDOCK_OUT"] + "/features.jsonl", "w") as out:
    for line in open(os.environ["PADDOCK_IN"] + "/records.jsonl"):
        order = json.loads(line)
        region = ("north", "east", "south", "west")[int(order["data"]["customer"][1:]) % 4]
        out.write(json.dumps({"id": order["id"], "features": {"region": region}}) + "\\n")
"""


class Orders(NamedTuple):
    source: dict[str, Any]
    hooks: dict[str, dict[str, Any]]


def write_orders(folder: Path) -> Orders:
    """The commands in a folder, and what paddock.toml would say of them."""
    folder.mkdir(parents=True, exist_ok=True)

    def command(name: str, text: str) -> list[str]:
        path = folder / f"{name}.py"
        path.write_text(text, "utf-8")
        return [sys.executable, "-S", str(path)]

    hooks = {
        "check-amount": {"command": command("check_amount", CHECK)},
        "add-region": {"command": command("add_region", REGION)},
    }
    source = {
        "description": "Orders of the web shop",
        "command": command("fetch_orders", FETCH),
        "hooks": list(hooks),
        "batch_size": BATCH_SIZE,
    }
    return Orders(source, hooks)
