"""The files that a read of captures or logs is about: found on the driver, opened in tasks.

A path is a file, a folder (read with the folders below it) or a glob, on this machine or at a URI that pyarrow's file
systems know: s3://, gs://, abfs://, hdfs://. All executors must see it under the same name. Other Hadoop file systems
go through Spark's own format binaryFile (`kwire.spark.captures_of`).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from pyarrow import fs

from kwire.errors import ConfigurationError

_BUFFER_BYTES = 1 << 20
_WILD = re.compile(r"[*?\[{]")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://")
_OTHERS = "; for others kwire.spark.captures_of"


class File(NamedTuple):
    """A file by the name under which tasks open it; `size` is in bytes."""

    path: str
    size: int


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the paths of `load(...)`. Raises ConfigurationError if there is none."""
    found = {name.lower(): value for name, value in options.items()}
    paths = list(json.loads(found["paths"])) if "paths" in found else []
    if "path" in found:
        paths.append(found["path"])
    if not paths:
        raise ConfigurationError("no path is given", remedy='name files, folders or globs in load("...")')
    return paths


def find_files(paths: list[str], is_wanted: Callable[[PurePosixPath], bool]) -> list[File]:
    """Return the files of the paths, sorted, each once.

    Of a folder or a glob, files that are not wanted are left out, and those whose name begins with "." or "_", as Spark
    does. A file that is named is wanted. Raises ConfigurationError for a path without files.
    """
    found: dict[str, File] = {}
    for path in paths:
        files = _files_of(path, is_wanted)
        if not files:
            raise ConfigurationError(f"{path} has no such files", remedy="check the path; globs need quotes in a shell")
        found |= {file.path: file for file in files}
    return [found[path] for path in sorted(found)]


def open_file(path: str) -> BinaryIO:
    """Open a file to read, buffered and seekable."""
    if not _SCHEME.match(path):
        return open(path, "rb", _BUFFER_BYTES)
    system, inside = file_system(path, _OTHERS)
    return io.BufferedReader(cast("io.RawIOBase", system.open_input_file(inside)), _BUFFER_BYTES)


def file_system(path: str, others: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path inside it.

    Raises ConfigurationError for a URI that pyarrow cannot open: `others` says what to do instead.
    """
    if not _SCHEME.match(path):
        return fs.LocalFileSystem(), path
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    except (ValueError, OSError) as error:  # pyarrow's own errors derive from these
        raise ConfigurationError(
            f"{path} cannot be read: {error}",
            remedy=f"use a path of this machine, s3://, gs://, abfs:// or hdfs://{others}",
        ) from None
    return found


def _files_of(path: str, is_wanted: Callable[[PurePosixPath], bool]) -> list[File]:
    path = path.removeprefix("file://")
    base = _without_glob(path)
    system, inside = file_system(base, _OTHERS)
    info = system.get_file_info(inside)
    if base == path:
        if info.type == fs.FileType.File:
            return [File(path, info.size)]
        pattern = None
    else:
        pattern = re.compile(_regex(path))
    if info.type != fs.FileType.Directory:
        return []
    files = []
    for one in system.get_file_info(fs.FileSelector(inside, recursive=True)):
        # The part below the base is the same in a URI and in its file system.
        below = one.path.removeprefix(inside).lstrip("/")
        name = f"{base.rstrip('/')}/{below}"
        is_file = one.type == fs.FileType.File and not any(part[0] in "._" for part in PurePosixPath(below).parts[-1:])
        # A glob may match folders, too: then all that is below them is read.
        is_matching = pattern is None or pattern.match(name) is not None
        if is_file and is_matching and is_wanted(PurePosixPath(name)):
            files.append(File(name, one.size))
    return files


def _without_glob(path: str) -> str:
    """Return the path up to its first part with a wildcard."""
    wild = _WILD.search(path)
    if wild is None:
        return path
    return path[: wild.start()].rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def _regex(glob: str) -> str:
    """Return a regular expression of a glob as Hadoop has it: *, ?, [abc], {a,b}; ** for folders at any depth."""
    if not glob.startswith("/") and not _SCHEME.match(glob) and _without_glob(glob) == ".":
        glob = f"./{glob}"
    tokens = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": "|"}
    text, depth = "", 0
    for token in re.findall(r"\*\*/|\*\*|\[[^\]]+\]|.", glob):
        depth += (token == "{") - (token == "}" and depth > 0)
        if token[0] == "[" and len(token) > 1:
            text += token.replace("[!", "[^")
        elif token in tokens and (token != "," or depth):
            text += tokens[token]
        else:
            text += re.escape(token)
    return f"{text}(?:/.*)?$"
