"""Find Java, and build the command line that runs a class of a folder of jars.

A JVM spends half of its start on loading classes. An archive of classes that are loaded already (class data sharing)
saves that: `class_archive` makes one for a folder of jars, and `java_command` uses it if it is there. A JVM ignores an
archive of another Java or of other jars.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"

_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
# For a JVM that ends before a second compiler, or a collector with threads of its own, is worth its start.
BRIEF_OPTIONS = (_FIRST_COMPILER, "-XX:+UseSerialGC")


def find_java() -> str | None:
    """Return the path of java, JAVA_HOME's or else the one on PATH, or None."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def java() -> str:
    """Return the path of java. Raises SystemExit if there is none."""
    found = find_java()
    if found is None:
        raise SystemExit("no java in JAVA_HOME or on PATH: run `tools/env java`, or install a Java 17 or newer")
    return found


def archive(name: str) -> Path:
    """Return the path of the class archive of a folder of jars, which may not exist yet. Each Java has its own."""
    home = Path(java()).resolve().parents[1]
    modules = home / "lib" / "modules"
    built = modules.stat().st_mtime_ns if modules.exists() else 0
    return CACHE / "class-archives" / f"{name}-{zlib.crc32(f'{home} {built}'.encode()):08x}.jsa"


def reading(path: Path) -> list[str]:
    """Return the JVM's options that use a class archive: none if the archive does not exist."""
    # Without the second option a JVM that cannot use the archive says so on standard output.
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:cds=off,cds+dynamic=off,class+path=off"] if path.exists() else []


def java_command(
    jars: Path, main: str, arguments: Sequence[str], *, heap_mb: int, log4j: Path, login_file: Path | None = None,
    is_brief: bool = True, options: Sequence[str] = (), classes: Path | None = None,
) -> list[str]:  # fmt: skip
    """Return the command line that runs a class of a folder of jars. `options` are further ones of the JVM.

    `classes` is a folder of further classes.

    With `is_brief` the JVM uses only its first compiler, which halves the start but is slower in the long run.
    """
    haste = [_FIRST_COMPILER, *reading(archive(jars.name))] if is_brief else []
    return [
        java(), "-server", *haste, "-XX:+UseSerialGC", "-Xss512k", "-Xms32m", f"-Xmx{heap_mb}m",
        "-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true", "-Dfile.encoding=UTF-8",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", f"-Dlog4j.configuration=file:{log4j}",
        *([f"-Djava.security.auth.login.config={login_file}"] if login_file else []),
        *options, "-cp", f"{jars}/*{os.pathsep}{classes}" if classes else f"{jars}/*", main, *arguments,
    ]  # fmt: skip


def program_command(jars: Path | Sequence[Path], *words: str | Path) -> list[str]:
    """Return the command that runs a class, or compiles and runs a file of source code, with folders of jars.

    It is for programs that run for seconds.
    """
    folders = [jars] if isinstance(jars, Path) else jars
    options = [*BRIEF_OPTIONS, *reading(archive(folders[0].name))]
    return [java(), *options, "-cp", os.pathsep.join(f"{folder}/*" for folder in folders), *map(str, words)]
