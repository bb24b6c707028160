"""The start rules of each RocketMQ version. `writer.py` tells which versions can have written a store.

One `BrokerRules` for each version from 4.3.0 to 5.5.1. Evidence for a version is "run" (its real classes were run:
4.9.7, 5.1.4, 5.4.0, 5.5.1) or "by source" (the source of that release was read: all others).
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any

from rmqstore.files.versions import RUN_VERSIONS, VERSIONS, exact_version, version_number
from rmqstore.formats import services
from rmqstore.formats.configuration import JsonReader, reader_of
from rmqstore.formats.properties import RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore.formats.services import FanOut


class LengthMismatch(StrEnum):
    """How a file of the wrong length affects the load of its queue (MappedFileQueue#doLoad)."""

    FAIL = "fail"  # load returns false
    IGNORE_REST = "ignore-rest"  # this file and all that sort after it are not loaded, load returns true


class NormalStart(StrEnum):
    """Where recovery begins after a clean exit (CommitLog#recoverNormally)."""

    LAST_THREE = "last-three"  # the third file from the end
    BY_FILE_START = "by-file-start"  # the newest file that starts at or below the largest consume queue address
    BY_FIRST_RECORD = "by-first-record"  # the newest file whose first record is valid and at or below that address


class AbnormalStart(StrEnum):
    """Where recovery begins if the `abort` file exists (CommitLog#isMappedFileMatchedRecover)."""

    HEAD = "head"  # only magic and store time of the first record are checked
    RECORD = "record"  # the whole first record must be valid


class Reput(StrEnum):
    """Where re-dispatch begins (DefaultMessageStore#start)."""

    LOG_END = "log-end"  # at the end of the log: no unit is added
    CQ_MAX = "cq-max"  # at the largest address in the consume queues; the start waits until it has caught up


class PropertyCrc(StrEnum):
    """Whether the version knows `__CRC32#` (forceVerifyPropCRC)."""

    NONE = "none"
    POSITIVE = "positive"  # a stored CRC of 0 counts as missing
    ANY = "any"


def _since(first: str, *, until: str = "") -> Any:
    """Make the field of a rule that is true from the version `first` on, and no longer from `until` on."""
    return field(metadata={"first": first, "until": until})


def _until(version: str) -> Any:
    """Make the field of a rule that is true before a version."""
    return _since(VERSIONS[0], until=version)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    """Start rules of one version."""

    version: str
    evidence: str
    """"run" or "by source"."""
    length_mismatch: LengthMismatch
    """MappedFileQueue#load."""
    skips_directories: bool = _since("5.1.0")
    """A directory among the files is skipped; before, it counts as a file of the wrong length."""
    deletes_empty_last: bool = _since("5.1.3")
    """A 0-byte entry that sorts last is deleted."""
    normal_start: NormalStart
    abnormal_start: AbnormalStart
    recover_cap: bool = _since("5.4.0")
    """commitLogRecoverMaxNum bounds the search for the start file."""
    v2: bool = _since("5.1.0")
    """Knows MESSAGE_MAGIC_CODE_V2."""
    ipv6: bool = _since("4.6.0")
    """Knows the IPv6 host flags."""
    bound_checks: bool = _since("5.3.2")
    """Compares TOTALSIZE with the remaining bytes before it allocates."""
    negative_size_refused: bool = _since("5.5.1")
    """Refuses a negative TOTALSIZE before it looks at the magic: a BLANK with one ends recovery."""
    property_crc: PropertyCrc
    splits_paths: bool = _since("4.9.4")
    """A comma in the path of a directory separates several directories (UtilAll#ensureDirOK)."""
    splits_properties: bool = _until("4.9.1")
    """A property counts only if its entry has exactly one separator."""
    duplicate_info: bool = _since("5.0.0")
    """duplicationEnable demands DUP_INFO."""
    inner_batch: bool = _since("5.0.0")
    """INNER_BASE and INNER_NUM are parsed, and must be numbers."""
    half_message_accepted: bool = _until("4.3.2")
    """After a crash, a record whose parts do not add up is accepted."""
    truncates_cq_after_clean_exit: bool = _since("4.3.2")
    """After a clean exit, consume queues that reach beyond the log are truncated."""
    cq_truncation_unconditional: bool = _until("4.3.2")
    """After a crash, the consume queues are truncated even if they do not reach beyond the log."""
    max_cq_after_dispatch: bool = _since("5.3.4")
    """The largest consume queue address is read again after recovery's dispatch, before the truncation."""
    dispatches_after_clean_exit: bool = _since("5.3.2")
    """Recovery dispatches records above the largest consume queue address."""
    destroys_cq_without_log_after_clean_exit: bool = _since("4.5.1")
    """Without a commitlog file, consume queues are deleted even after a clean exit."""
    cq_address_is_start: bool = _until("4.5.1")
    """maxPhysicOffset of a queue is the start of its last message, not its end."""
    binary_min_offset: bool = _since("5.0.0")
    """ConsumeQueue#correctMinOffset does a binary search, and handles queues without a live unit."""
    empty_last_queue_file_is_fatal: bool = _since("5.0.0", until="5.5.0")
    """ConsumeQueue#correctMinOffset throws if the last file of a queue has no unit."""
    forgets_end_of_empty_queue: bool = _since("5.5.1")
    """ConsumeQueue#correctMinOffset sets maxPhysicOffset of a queue without files to -1, so that it gets the units of
    all messages that are dispatched later; before, truncation leaves it at the end of the log."""
    reput: Reput
    fan_out: FanOut
    """Which messages light message queues get."""
    batch_queues: bool = _since("5.0.0")
    """batchconsumequeue/ is loaded."""
    tiered_store: bool = _since("5.1.0")
    """Has the message store plug-in TieredMessageStore."""
    compaction: bool = _since("5.1.0")
    """compaction/ is loaded after the queues."""
    rocksdb_queues: bool = _since("5.2.0")
    """storeType=defaultRocksDB keeps consume queues in RocksDB."""
    combined_queues: bool = _since("5.3.4")
    """rocksdbCQDoubleWriteEnable: recovery starts early enough to add the rows that RocksDB lacks."""
    light_in_rocksdb: bool = _since("5.5.0")
    """combineCQUseRocksdbForLmq: light queues are only in RocksDB, even if all others are in files."""
    index_failure_is_fatal: bool = _since("5.1.0")
    """An index file that cannot be opened makes load return false."""
    timer_wheel: bool = _since("5.0.0")
    """The timer wheel file is opened before the store is loaded."""
    config_reader: JsonReader
    """Which texts of configuration files it can read."""
    more_metadata: bool = _since("5.0.0")
    """topicQueueMapping.json and consumerOrderInfo.json are loaded."""
    any_wheel_failure_is_caught: bool = _since("5.3.1")
    """A wheel file of the wrong length makes initialize() return false; before, the exception ends the process."""
    blank_name_server: bool = _since("5.1.0")
    """A namesrvAddr without a character is none; before, a broker refuses it as no address."""
    one_mode: bool = _since("5.1.1")
    """A broker that is to use both a controller and DLedger ends at once."""
    wheel_snapshots: bool = _since("5.3.4")
    """timerWheelSnapshotFlush keeps the wheel in numbered snapshot files."""
    shutdown_throws: bool = _since("5.1.2", until="5.3.4")
    """A broker that could not load its store throws in its own shutdown and exits with 255."""
    dledger: str | None
    """Version of the DLedger library; None before 4.5.1."""
    dledger_abnormal: bool = _since("5.2.0")
    """DLedger mode has an abnormal recovery of its own."""
    dledger_wants_duplicate_info: bool = _since("5.2.0", until="5.3.0")
    """That recovery demands DUP_INFO even without duplicationEnable, so it ends at the first message."""
    dledger_deprecated: bool = _since("5.5.1")
    """DLedger mode still works, but a warning in the log says that it will go."""
    writes_without_mapping: bool = _since("5.3.4")
    """writeWithoutMmap: the log is written without mappings, and cannot be written through them."""
    access_databases: bool = _since("5.3.0")
    """Users and permissions are in config/users/ and config/acls/."""
    message_rows_limit_start: bool = _since("5.4.0")
    """Recovery begins early enough to add the index rows and half messages that rocksdbstore/ lacks."""
    logics_offset: bool = _since("5.5.0")
    """The checkpoint has a logicsPhysicalOffset. It decides where recovery begins after a crash, and all stores that
    messages are dispatched to (CommitLogDispatchStore) take part in the decision."""
    accelerated_recovery: bool = _since("5.5.0")
    """After a crash, enableAcceleratedRecovery begins inside a file, where dispatch ended."""
    offset_check: bool = _since("5.5.0")
    """checkCommitLogOffsetOnRecover ends recovery at a record whose PHYSICALOFFSET is not in its file."""
    separate_rocksdb_queues: bool = _since("5.5.0")
    """useSeparateStorePathForRocksdbCQ puts the RocksDB of the queues in consumequeue_rocksdb/."""
    pull_fails_without_row: bool = _since("5.5.0")
    """A pull from a queue in RocksDB fails if it meets a queue offset without a row, unless
    iteratorWhenUseRocksdbConsumeQueue=false; before, only one that begins there finds nothing."""
    double_write_needs_lmq: bool = _since("5.5.0")
    """A broker with rocksdbCQDoubleWriteEnable starts only with combineCQUseRocksdbForLmq."""
    selective_double_write: bool = _since("5.5.1")
    """rocksdbCQSelectiveDoubleWriteEnable writes only queues of lite topics to RocksDB, too."""

    @property
    def has_dledger_mode(self) -> bool:
        """Whether the version can start in DLedger mode (4.5.1)."""
        return self.dledger is not None


def rules_for(version: str | None = None) -> BrokerRules:
    """Return the rules of a version; `5.1` means the newest 5.1.x, None the newest of all.

    Errors: UsageError for an unknown version, naming those before and after it.
    """
    return _rules(exact_version(version))


_DLEDGER = (("4.5.1", "0.1"), ("4.8.0", "0.2.2"), ("4.9.3", "0.2.3"), ("4.9.4", "0.2.6"), ("4.9.5", "0.3.1.2"))
_DLEDGER_5 = (("5.0.0", "0.3.1"), ("5.1.1", "0.3.1.2"), ("5.4.0", "0.3.2"), ("5.5.1", "0.3.3.4"))


def _holds(rule: Field[bool], version: tuple[int, ...]) -> bool:
    first, until = rule.metadata["first"], rule.metadata["until"]
    return version_number(first) <= version and not (until and version >= version_number(until))


@cache
def _rules(version: str) -> BrokerRules:
    v = version_number(version)

    def since(text: str) -> bool:
        return v >= version_number(text)

    dledger: str | None = None
    for first, library in _DLEDGER_5 if since("5.0.0") else _DLEDGER:
        if since(first):
            dledger = library
    normal = NormalStart.LAST_THREE
    if since("5.3.4"):
        normal = NormalStart.BY_FIRST_RECORD
    elif since("5.3.2"):
        normal = NormalStart.BY_FILE_START
    crc = PropertyCrc.NONE
    if since("5.2.0"):
        crc = PropertyCrc.ANY if since("5.3.2") else PropertyCrc.POSITIVE
    return BrokerRules(
        version=version,
        evidence="run" if version in RUN_VERSIONS else "by source",
        length_mismatch=LengthMismatch.IGNORE_REST if not since("4.5.1") or version == "4.9.2" else LengthMismatch.FAIL,
        normal_start=normal,
        abnormal_start=AbnormalStart.RECORD if since("5.3.4") else AbnormalStart.HEAD,
        property_crc=crc,
        reput=Reput.CQ_MAX if since("4.5.1") and not since("5.0.0") else Reput.LOG_END,
        fan_out=_fan_out(v),
        config_reader=reader_of(version),
        dledger=dledger,
        **{f.name: _holds(f, v) for f in fields(BrokerRules) if f.metadata},
    )


def _fan_out(version: tuple[int, ...]) -> FanOut:
    """Return the rules for light message queues (ConsumeQueue#checkMultiDispatchQueue, MultiDispatchUtils)."""
    if version >= (5, 2, 0):
        return services.NEWEST
    if version >= (5, 1, 3):
        return FanOut(frozenset({TIMER_TOPIC, SCHEDULE_TOPIC}), (RETRY_PREFIX,), skips_paths=True)
    return FanOut(prefixes=(RETRY_PREFIX,)) if version >= (5, 1, 1) else FanOut()
