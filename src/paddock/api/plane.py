"""What the routes of one control plane share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from paddock.api.hub import Hub
from paddock.api.tokens import Tokens
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.metrics import Metrics


@dataclass
class Plane:
    core: Core
    config: Config
    tokens: Tokens
    metrics: Metrics
    hub: Hub
    # Set once this process is to stop: whoever waits in a call is answered now.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether this process's own loops still turn: /health asks. Whoever runs them says so.
    healthy: Callable[[], bool] = lambda: True


async def _plane(request: Request) -> Plane:
    plane: Plane = request.app.state.plane
    return plane


ThePlane = Annotated[Plane, Depends(_plane)]
