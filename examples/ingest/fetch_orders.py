"""An ingester: orders from a paged HTTP API, each call a page. The session is the number of the last order."""

import json
import os
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

folder, out = Path(os.environ["PADDOCK_IN"]), Path(os.environ["PADDOCK_OUT"])
config = json.loads((folder / "config.json").read_text())
session = Path(os.environ["PADDOCK_SESSION"])
after = json.loads(session.read_text()) if session.exists() else 0

try:
    with urlopen(f"{config['url']}/orders?after={after}&limit={os.environ['PADDOCK_LIMIT']}", timeout=30) as answer:
        page = json.load(answer)
except HTTPError as error:
    print(f"The server answers {error.code}.")
    sys.exit(75 if error.code in (429, 503) else 1)  # 75: try again later

with (out / "records.jsonl").open("w") as file:
    for order in page["orders"]:
        file.write(json.dumps({"id": order["number"], "data": order}) + "\n")
        after = order["number"]
(out / "session.json").write_text(json.dumps({"session": after, "has_more": page["more"]}))
print(f"Fetched {len(page['orders'])} orders, up to number {after}.")
