"""What runs inside the probe's pod: it tries to reach each place it was told, and prints what became of that as one JSON line.
It opens connections and sends nothing."""

import asyncio
import json
import os
import sys

SECONDS = 3.0


async def reach(places: dict[str, str]) -> dict[str, bool]:
    """Places are "host:port", where `$API` is the API server as Kubernetes names it to every pod."""
    api = f"{os.environ.get('KUBERNETES_SERVICE_HOST', 'kubernetes.default.svc')}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    answers = await asyncio.gather(*(_reaches(api if place == "$API" else place) for place in places.values()))
    return dict(zip(places, answers, strict=True))


async def _reaches(place: str) -> bool:
    host, _, port = place.rpartition(":")
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True


def main(told: str) -> None:
    sys.stdout.write(json.dumps({"reached": asyncio.run(reach(json.loads(told)))}) + "\n")
