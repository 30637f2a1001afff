"""What `dump_postgres` measures, each in a process of its own: `URL FORMAT`, or `--alone PG_DUMP URL`.

Says the CPU that the work took, its children's included, without the start of Python and the loading of modules.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import cast

from bench.dump_job import cpu
from paddock.dumps.composing import Composer
from paddock.dumps.database_settings import PostgresDatabase
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.postgres.source import PostgresSource


async def ours(url: str, format: Format) -> None:
    source = PostgresSource(PostgresDatabase(type="postgres", url=url, password_env="PGPASSWORD"))
    frozen = await source.open(format, DumpOptions(), "bench")
    try:
        with open(os.devnull, "wb") as nowhere:
            async for chunk in Composer(frozen, format, DumpOptions()).chunks():
                nowhere.write(chunk)
    finally:
        await frozen.close()


def alone(pg_dump: str, url: str) -> None:
    with open(os.devnull, "wb") as nowhere:
        subprocess.run([pg_dump, url], stdout=nowhere, check=True)


def main() -> None:
    before = cpu()
    if sys.argv[1] == "--alone":
        alone(*sys.argv[2:])
    else:
        asyncio.run(ours(sys.argv[1], cast(Format, sys.argv[2])))
    print(json.dumps({"cpu": cpu() - before}))


if __name__ == "__main__":
    main()
