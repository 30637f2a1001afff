"""A relay between Paddock's webhooks and the addresses of Slack and PagerDuty, which want bodies of their own.

    PADDOCK_WEBHOOK_SECRET=whsec_… SLACK_URL=https://… PAGERDUTY_KEY=… python relay.py 9000

It keeps nothing. What cannot be passed on is answered with 502, and Paddock sends it again; PagerDuty takes the same
alert twice as one, because it has the event's subject as its key. Put it behind something that speaks HTTPS.
"""

import hashlib
import hmac
import http.server
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
LONGEST_BODY = 1_000_000
OLDEST_SECONDS = 300
WITHIN_SECONDS = 10  # Paddock waits 15 for the answer


@dataclass(frozen=True)
class Places:
    """Where it goes; what is empty gets nothing. `dashboard` is the address of Paddock's own pages, for the links."""

    secret: str
    slack: str = ""
    pagerduty_key: str = ""
    pagerduty: str = PAGERDUTY
    dashboard: str = ""


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    timestamp, signature = headers.get("Paddock-Timestamp") or "", headers.get("Paddock-Signature") or ""
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(now - int(timestamp[:12])) > OLDEST_SECONDS:
        return False  # an old request, sent again
    expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(signature.encode(), f"v1={expected}".encode())


def sentence(event: Mapping[str, Any]) -> str:
    """`job.failed: export 019a… (disk_full)`"""
    data = event["data"]
    what = " ".join(str(word) for word in (data.get("kind"), event["subject"]) if word)
    code = f" ({data['error_code']})" if data.get("error_code") else ""
    return f"{'Sample of ' if data.get('sample') else ''}{event['type']}: {what}{code}"


def link(event: Mapping[str, Any], dashboard: str) -> str:
    return f"{dashboard.rstrip('/')}/events/{event['id']}" if dashboard else ""


def slack_message(event: Mapping[str, Any], dashboard: str = "") -> dict[str, Any]:
    text = sentence(event).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    address = link(event, dashboard)
    return {"text": f"{text} <{address}|Open>" if address else text}


def pagerduty_alert(event: Mapping[str, Any], key: str, dashboard: str = "") -> dict[str, Any] | None:
    """An alert for what failed, its end for what completed after all; None: nobody is woken by this."""
    what = event["type"].rpartition(".")[2]
    if event["data"].get("sample") or what not in ("failed", "alarm", "completed"):
        return None
    alert: dict[str, Any] = {
        "routing_key": key,
        "event_action": "resolve" if what == "completed" else "trigger",
        "dedup_key": event["subject"][:255],
    }
    if what != "completed":
        alert["payload"] = {"summary": sentence(event)[:1024], "source": "paddock", "severity": "error"}
        if address := link(event, dashboard):
            alert["links"] = [{"href": address, "text": "Paddock"}]
    return alert


def pass_on(event: Mapping[str, Any], places: Places) -> None:
    if places.pagerduty_key:
        alert = pagerduty_alert(event, places.pagerduty_key, places.dashboard)
        if alert is not None:
            post(places.pagerduty, alert)
    if places.slack:
        post(places.slack, slack_message(event, places.dashboard))


def post(url: str, body: Mapping[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=WITHIN_SECONDS / 2):
        pass


def serve(places: Places, host: str, port: int) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            self.send_response(self.taken())
            self.send_header("Content-Length", "0")
            self.end_headers()

        def taken(self) -> int:
            """The status of the answer: Paddock gives up at 400 and 401, and comes back at 502."""
            length = self.headers.get("Content-Length") or ""
            if not (length.isascii() and length.isdigit()) or int(length[:9]) > LONGEST_BODY:
                return 400
            body = self.rfile.read(int(length))
            if not is_genuine(places.secret, self.headers, body, time.time()):  # type: ignore[arg-type]  # a Message has get
                return 401
            event = json.loads(body)
            try:
                pass_on(event, places)
            except (OSError, urllib.error.URLError) as problem:
                # Neither the addresses nor the key are told: whoever has them can write in your name.
                print(f"{event['type']} could not be passed on: {type(problem).__name__}", file=sys.stderr)
                return 502
            return 204

        def log_message(self, *_: Any) -> None:
            pass

    return http.server.ThreadingHTTPServer((host, port), Handler)


if __name__ == "__main__":
    found = Places(
        secret=os.environ["PADDOCK_WEBHOOK_SECRET"],
        slack=os.environ.get("SLACK_URL", ""),
        pagerduty_key=os.environ.get("PAGERDUTY_KEY", ""),
        dashboard=os.environ.get("PADDOCK_DASHBOARD", ""),
    )
    serve(found, "127.0.0.1", int(sys.argv[1])).serve_forever()
