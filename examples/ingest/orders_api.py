"""A small paged HTTP API to ingest from: `python3 orders_api.py 8099`.

GET /orders?after=N&limit=M answers up to M orders after number N. Every tenth request is told to come later (429), as busy
servers do.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

TOTAL = 250
requests = count(1)


class Orders(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        after, limit = int(asked.get("after", ["0"])[0]), int(asked.get("limit", ["100"])[0])
        last = min(after + limit, TOTAL)
        orders = [
            {"number": n, "customer": f"c{n % 17}", "amount": f"{n * 7 % 400 - 10}.50"}
            for n in range(after + 1, last + 1)
        ]
        body = json.dumps({"orders": orders, "more": last < TOTAL}).encode()
        self.send_response(429 if next(requests) % 10 == 0 else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Orders).serve_forever()
