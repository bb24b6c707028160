"""The partitions of the sources: what one Spark task reads."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.datasource import InputPartition

from rmqstore.views.stores import Piece, StoreRef


class Pieces(InputPartition):  # type: ignore[misc]  # PySpark has no types here
    """Pieces of files that one task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


class OneFile(InputPartition):  # type: ignore[misc]
    """One index file, or one store to verify."""

    def __init__(self, ref: StoreRef, path: Path) -> None:
        super().__init__(None)
        self.ref = ref
        self.path = path
