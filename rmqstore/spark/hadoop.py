"""Reads and writes small files on the file system that Spark writes to: local, HDFS, S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Folder:
    """A directory that Spark can write to. Errors: Py4JJavaError, which wraps Hadoop's exceptions."""

    def __init__(self, spark: Any, path: str) -> None:
        context = spark.sparkContext
        self._jvm = context._jvm
        self.path = self._jvm.org.apache.hadoop.fs.Path(path)
        self._system = self.path.getFileSystem(context._jsc.hadoopConfiguration())

    @property
    def local(self) -> Path | None:
        """The path of the directory if it is on a file system that is mounted here, otherwise None."""
        if self._system.getScheme() != "file":
            return None
        return Path(self._system.makeQualified(self.path).toUri().getPath())

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path, name)

    def names(self, folder: str = "") -> list[str]:
        """Names in the directory, or in a folder of it; none if it does not exist."""
        path = self._at(folder) if folder else self.path
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def read_json(self, name: str) -> Any:
        """Return the value in a JSON file; None if the file is not valid JSON, as after a kill."""
        stream = self._system.open(self._at(name))
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        try:
            return json.loads(text)
        except ValueError:
            return None

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file under another name, then rename it, so that it is never seen incomplete."""
        beside, target = self._at(f"{name}.part"), self._at(name)
        stream = self._system.create(beside, True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self._system.delete(target, False)
        self._system.rename(beside, target)

    def delete(self, name: str) -> None:
        """Delete a file or a directory with its contents, if it exists."""
        self._system.delete(self._at(name), True)

    def matching(self, pattern: str) -> list[str]:
        """Paths below the directory that match a glob."""
        found = self._system.globStatus(self._at(pattern))
        return [status.getPath().toString() for status in found or ()]

    def delete_matching(self, pattern: str) -> int:
        """Delete everything that matches a glob; return how many paths that were."""
        paths = self.matching(pattern)
        for path in paths:
            self._system.delete(self._jvm.org.apache.hadoop.fs.Path(path), True)
        return len(paths)
