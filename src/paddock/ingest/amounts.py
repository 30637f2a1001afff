"""Amounts of bytes as the settings count them."""


def gibibytes(count: int) -> str:
    """`10 GiB`; less than a tenth of one is told in MiB."""
    if count < 1024**3 // 10:
        return f"{count / 1024**2:,.0f} MiB"
    return f"{count / 1024**3:,.1f}".removesuffix(".0") + " GiB"
