"""Exports: SQL to files, by plain exports and by mappings and snapshots."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter


def routers() -> "Sequence[APIRouter]":
    """The capability's part of the public API."""
    from paddock.exports import mapping_routes, routes, snapshot_routes

    return [routes.router, mapping_routes.router, snapshot_routes.router]
