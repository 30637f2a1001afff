"""Dumps: a whole database as one file, from one point in time, in slices that survive any kill."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter


def routers() -> "Sequence[APIRouter]":
    """The capability's part of the public API."""
    from paddock.dumps import routes

    return [routes.router]
