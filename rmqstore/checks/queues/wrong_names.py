"""What a start does with a log whose files have wrong names: brokers read them, and delete them, by these names.

Everything else that is known about such a store describes the store after its files are renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.checks.log.witnesses import Witnesses
from rmqstore.checks.misplaced_files import Misplaced
from rmqstore.checks.queues.undelivered import queue_offsets
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.ranges import Ranges
from rmqstore.scan.columns import Columns
from rmqstore.scan.records import good_records

if TYPE_CHECKING:
    from rmqstore.brokers.forecast import StartForecast


class AtWrongNames(NamedTuple):
    """Messages of a log by queue: `cut`, which a start deletes, and `hidden`, which it leaves where no unit leads."""

    cut: Mapping[QueueName, Ranges]
    hidden: Mapping[QueueName, Ranges]


class WrongNames:
    """The messages of a log with misplaced files after starts. The log is read once for each offset where they end."""

    def __init__(self, misplaced: Misplaced, witnesses: Witnesses) -> None:
        self.misplaced = misplaced
        self._whole = witnesses.whole
        self._known: dict[int, AtWrongNames] = {}

    def after(self, stop: int) -> AtWrongNames:
        """Return the messages after a start that ends the log at an offset, by the present names of the files."""
        if stop not in self._known:
            cut, hidden = (queue_offsets(self._records(stop, cut=cut)) for cut in (True, False))
            for name, rows in self._whole.items():
                for number, offset in rows:
                    at = self.misplaced.position(offset)
                    out = hidden if at is None or at < stop else cut
                    if at != offset or out is cut:
                        out[name] = out.get(name, Ranges()) | Ranges.span(number, number + 1)
            self._known[stop] = AtWrongNames(cut, hidden)
        return self._known[stop]

    def of(self, forecast: StartForecast) -> AtWrongNames:
        """Return the messages after the start of a forecast."""
        starts = forecast.starts and forecast.commitlog_stop is not None
        return self.after(forecast.commitlog_stop or 0) if starts else AtWrongNames({}, {})

    def adjust(self, forecast: StartForecast) -> StartForecast:
        """Return the forecast of a start with all messages that it deletes, also those of files with wrong names."""
        cut = {name: len(numbers) for name, numbers in self.of(forecast).cut.items()}
        return replace(forecast, messages_lost=sum(cut.values()), lost_by_queue=cut)

    def _records(self, stop: int, *, cut: bool) -> Iterator[Columns]:
        """Yield the records that a start deletes, or those that it leaves in a file with a wrong name."""
        for log, body_offset in self.misplaced.store.logs:
            for file in log.files:
                now = self.misplaced.present(file)
                lost_from = file.stop if now is None else max(file.start, file.start + stop - now)
                if (lost_from >= file.stop) if cut else now == file.start:
                    continue
                for columns in good_records(file, body_offset):
                    yield columns.take((columns.offset - body_offset >= lost_from) == cut)
