"""Ids are opaque to callers: one that is no id at all is simply not there."""

from uuid import UUID

from paddock.api.errors import invalid_field, not_found


def path_id(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise not_found(what) from None


def optional_id(text: str | None, field: str) -> UUID | None:
    """For filters, where nothing matching must be told from a typing mistake."""
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise invalid_field(field, "This is not an id.") from None
