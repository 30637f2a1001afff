"""What `paddock up` refuses."""


class UpError(Exception):
    """A sentence for the person who started it."""

    code = "up"
