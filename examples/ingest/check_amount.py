"""A hook that rejects: an order's amount must be positive. Each record is named in exactly one of the files."""

import json
import os
from decimal import Decimal
from pathlib import Path

folder, out = Path(os.environ["PADDOCK_IN"]), Path(os.environ["PADDOCK_OUT"])
with (
    (folder / "records.jsonl").open() as records,
    (out / "features.jsonl").open("w") as passed,
    (out / "rejections.jsonl").open("w") as rejected,
):
    for line in records:
        record = json.loads(line)
        if Decimal(record["data"]["amount"]) > 0:
            passed.write(json.dumps({"id": record["id"], "features": {}}) + "\n")
        else:
            rejected.write(json.dumps({"id": record["id"], "reason": "the amount is not positive"}) + "\n")
