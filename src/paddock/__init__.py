"""Paddock: a control plane for data jobs that must neither be lost nor run twice."""

__version__: str


def __getattr__(name: str) -> str:
    # Looked up on demand: importlib.metadata costs more than everything else that `import paddock` does.
    if name == "__version__":
        from importlib.metadata import version

        return version("paddock")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
