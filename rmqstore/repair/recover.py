"""plan_recovery: plans the repair of a whole store, so that every broker version with its format can start from it.

Pure: it reads the store and returns a plan. It runs the planners in the order in which a start reads the parts:
directories, log, consume queues, index, checkpoint, configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property

from rmqstore.brokers.rules.forecast import StartOptions
from rmqstore.brokers.rules.versions import RUN_VERSIONS
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area, Severity
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.verify import Verified, problem_counts
from rmqstore.files.records import message_at
from rmqstore.files.store import Store, StoreKind
from rmqstore.repair.beside.checkpoint import KeptEnd, last_record_start, plan_checkpoint
from rmqstore.repair.beside.config import plan_configs, plan_offsets
from rmqstore.repair.beside.directory import plan_directories
from rmqstore.repair.beside.dledger import plan_dledger
from rmqstore.repair.beside.message_rows import LogChange, plan_message_rows
from rmqstore.repair.beside.pop_rows import plan_pop_rows
from rmqstore.repair.beside.rocksdb import refuse_rows, tell_left
from rmqstore.repair.beside.timer import plan_timer
from rmqstore.repair.decisions import (
    damage_decisions,
    offset_decisions,
    packed_decisions,
    path_decisions,
    sizes_decisions,
)
from rmqstore.repair.log.contradicted import list_damaged, note_contradicted
from rmqstore.repair.log.misplaced_files import plan_misplaced, store_in_place, without_renames
from rmqstore.repair.log.redispatch import Redispatch
from rmqstore.repair.log.repaired_log import RepairedLog
from rmqstore.repair.log.store_guard import data_roots, refuse_unknown, refuse_whole, wrote_positions
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import TRUNCATE, Choice, RecoverOptions, choose
from rmqstore.repair.plan.wording import first_notes
from rmqstore.repair.rebuild.consume_queues import (
    QueueRebuild,
    RebuildChoices,
    cut_queues,
    known_topic,
    parse_label,
    wanted_queues,
)
from rmqstore.repair.rebuild.dispatch_limit import dispatch_limit, lag_needs_abort
from rmqstore.repair.rebuild.index import IndexRebuild
from rmqstore.repair.salvage.evidence.places import missing_front
from rmqstore.repair.salvage.evidence.table import Evidence
from rmqstore.repair.salvage.log_end import drop_behind_hole, first_damage, lose_tail, plan_tail, zero_from
from rmqstore.repair.salvage.loss import Ledger, before_begin, damage_behind
from rmqstore.repair.salvage.proved_records import ProvedRecords
from rmqstore.repair.salvage.reach import reach
from rmqstore.repair.salvage.result import SalvageResult
from rmqstore.repair.salvage.salvage import plan_salvage
from rmqstore.repair.unrepaired import unrepaired_problems
from rmqstore.scan.dispatch import Name

LOG_AREAS = (Area.LOG, Area.DLEDGER)


def plan_recovery(store: Store, verified: Verified, options: RecoverOptions | None = None) -> Plan:
    """Plan the repair of a store that was just examined; the plan is empty if there is nothing to do.

    Errors: UsageError for an unknown strategy or role; Refused if rows in a RocksDB that nothing here writes would have
    to change; NotReadable.
    """
    options = options or RecoverOptions()
    refuse_whole(store, verified)
    if verified.report.live and not options.only:  # the other parts have changed since they were read
        options = replace(options, only=tuple(sorted(problem_counts(verified.report))))
    store = store_in_place(store, verified, options)
    return Recovery(store, verified, options).plan()


class Recovery:
    """One recovery while it is planned."""

    def __init__(self, store: Store, verified: Verified, options: RecoverOptions) -> None:
        self.store = store
        self.verified = verified
        self.options = options
        self.choice: Choice = choose(store, options)
        mends = self.choice.strategy != TRUNCATE and options.wants_area(*LOG_AREAS)
        self.evidence = Evidence(store, verified, mends_end=mends)
        self.draft = PlanBuilder(store)
        self.results = verified.results
        # DLedger continues a legacy log, which includes what is repaired at its end
        self.ends = {id(r): reach(self.evidence, r) for r in self.results}
        self.salvaged = SalvageResult()
        self.cut: int | None = None
        self.shortened: frozenset[Name] = frozenset()
        self.tail_cut = False
        self.limit = dispatch_limit(store, verified, self.choice.role)
        self.rebuilt: frozenset[Name] | None = frozenset()

    @property
    def counts(self) -> Mapping[str, int]:
        return self.verified.report.findings.counts

    def plan(self) -> Plan:
        """Run all planners."""
        draft, options = self.draft, self.options
        draft.decisions.extend(sizes_decisions(self.store, self.verified.report.findings.listed))
        if not draft.decisions:
            draft.decisions.extend(damage_decisions(self.results, self.counts, options))
            draft.decisions.extend(offset_decisions(self.results))
            draft.decisions.extend(path_decisions(self.store, self.counts))
            draft.decisions.extend(packed_decisions(self.verified.report.findings.listed))
            plan_misplaced(draft, self.verified)
            filled = options.accept_fillers or self.choice.strategy == TRUNCATE
            plan_directories(draft, self.verified, options, filled=filled)
            if self.results and options.wants(codes.DIR_EMPTY_FILE):
                before_begin(self.evidence, self.results[0]).book(draft)
            if options.wants_area(*LOG_AREAS):
                self._log()
            if (
                self.results
                and self.cut is None
                and (options.wants_area(*LOG_AREAS) or options.wants(codes.CQ_BEYOND_LOG))
            ):
                self.shortened = lose_tail(draft, self.evidence, self.results[-1])
            self._dledger()
            self._queues()
            self._index()
            self._checkpoint()
            cut = self._end() if self._shrank() else self.cut
            plan_configs(draft, self.verified, options, cut=cut)
            plan_timer(draft, self.verified, options, cut=cut, last_time=self._last_time)
            plan_offsets(draft, self.verified, options, cut=cut)
            self._message_rows()
            plan_pop_rows(draft, self.verified, options)
            self._abort()
        if self._touches_log() or options.strategy:
            draft.notes[:0] = self.choice.notes
        draft.facts["strategy"] = self.choice.strategy
        draft.facts["role"] = self.choice.role
        draft.facts["wrote"] = dict(wrote_positions(self.verified))
        touches_log = self._touches_log(renames=False)
        if self._ends_earlier:
            refuse_unknown(self.store)
        if touches_log:
            refuse_rows(self.store)
        if self.store.rocksdb_beside and not self._beside() and draft.steps:
            tell_left(draft, touches_log=touches_log)
        if draft.steps:
            self._lose_whole_log()
        if not self.verified.report.clean:
            draft.facts["stays"] = unrepaired_problems(self.verified.report, draft, options, self.choice)
        return draft.plan(data_roots(self.store))

    def _lose_whole_log(self) -> None:
        """Count the messages that consume queues name if the log has no record left."""
        for finding in self.verified.report.findings.listed:
            units = finding.facts.get("units")
            if finding.code == codes.CL_NO_MESSAGES and not self.results and isinstance(units, int):
                self.draft.lost_messages += units
                self.draft.more["at_least"] = True

    # --- the log --------------------------------------------------------------------------------------------------

    def _log(self) -> None:
        listed = [f.offset for f in self.verified.report.findings.listed if f.damages_log]
        damaged = [r for r in self.results if first_damage(r, listed, self.ends[id(r)]) is not None]
        if self.choice.strategy != TRUNCATE:
            fronts = {id(r) for r in self.results if missing_front(self.evidence, r)}
            # the last legacy files, or DLedger's first ones, are missing
            damaged += [r for r in self.results if r.tiling.stop < self.ends[id(r)] or id(r) in fronts]
        if damaged and self.choice.strategy == TRUNCATE:
            self._truncate(damaged[0], listed)
            return
        if damaged or (self.choice.strategy != TRUNCATE and any(PROBLEMS[code].mendable for code in self.counts)):
            self._salvage()
        for result in self.results:
            if result is self.results[-1]:
                drop_behind_hole(self.draft, result)
                plan_tail(self.draft, result, self.ends[id(result)])
                self.tail_cut = result.reaches > self.ends[id(result)]

    def _salvage(self) -> None:
        draft = self.draft
        result = plan_salvage(self.evidence, self.options)
        self.salvaged = result
        taken = {s.path for s in result.steps if s.do in ("extend", "truncate", "discard")}
        draft.steps = [s for s in draft.steps if not (s.do in ("extend", "truncate", "discard") and s.path in taken)]
        for step in result.steps:
            draft.add(step)
        draft.spans.extend(result.spans)
        draft.decisions.extend(result.decisions)
        draft.notes.extend(first_notes([*result.refusals, *result.notes]))
        draft.lose(result.loss.queues, 0)
        draft.lost_messages += result.loss.messages - sum(result.loss.queues.values())
        draft.lost_bytes += result.loss.bytes
        draft.more.update(result.loss.more)
        draft.more["visible_fillers"] = result.visible_fillers
        if result.visible_fillers:
            draft.facts["fillers"] = [f.to_json() for f in result.fillers if f.kind == "visible"]
        if result.restored:
            draft.facts["mended"] = [asdict(r) for r in result.restored]
        list_damaged(draft, result.damaged)
        if result.given_up:
            draft.more["good_messages_given_up"] = result.given_up
        draft.unproved.update(result.unproved)
        draft.more["groups_that_will_see_them"] = dict(result.groups_that_will_see_them)

    def _truncate(self, result: LogResult, listed: list[int]) -> None:
        cut = first_damage(result, listed, self.ends[id(result)])
        assert cut is not None
        self.cut = cut
        if result is not self.results[-1]:
            self.draft.decisions.append("the damage is in the legacy commitlog: all DLedger entries would be lost")
        ledger = Ledger()
        for later in self.results[self.results.index(result) :]:
            start = max(cut, later.queue.start)
            dispatcher = Redispatch(self.store, ledger, self.verified.batch_topics)
            dispatcher.run(RepairedLog(later, later.queue.stop, ()), start)
            self.ends[id(later)] = min(self.ends[id(later)], cut)
            zero_from(self.draft, later, cut, "after the first damage of the log")
            damaged = damage_behind(self.evidence, later, cut)
            ledger.queues.update(damaged.queues)
            if damaged.at_least:
                ledger.at_least = True
                ledger.notes.append("the loss is a lower bound: consume queues that would show more are missing too")
        ledger.book(self.draft)
        self.draft.notes.append(f"the log will end at {cut:,}, where a broker would truncate it")

    # --- what follows from the log --------------------------------------------------------------------------------

    def _views(self, limit: int | None = None) -> list[RepairedLog]:
        ends = [self.ends[id(r)] for r in self.results]
        if limit is not None:
            ends = [min(end, max(limit, r.queue.start)) for end, r in zip(ends, self.results, strict=True)]
        views = [self.proved.view(r, end, self.draft) for end, r in zip(ends, self.results, strict=True)]
        self.proved.note(self.draft, views)
        return views

    @cached_property
    def proved(self) -> ProvedRecords:
        return ProvedRecords(self.evidence)

    def _dledger(self) -> None:
        result = self.verified.dledger
        if result is None or self.store.part not in (None, "dledger-group"):
            return
        view = RepairedLog.of(result, self.ends[id(result)], self.draft)
        changed = bool(view.patches) or self.cut is not None or self.tail_cut
        plan_dledger(self.draft, self.verified, view, self.options, changed=changed)

    def _index(self) -> None:
        as_they_are = codes.CL_CONTRADICTED in self.options.only
        found = [c for c in self.counts if PROBLEMS[c].area is Area.INDEX and self.options.wants(c)]
        found += [codes.CL_CONTRADICTED] if as_they_are and codes.CL_CONTRADICTED in self.counts else []
        if self.store.part is not None or not self.results or not self.store.index_files:
            return
        views = self._views(self.limit)
        note_contradicted(self.draft, self.verified, views)
        complete = self._removes_abort()
        changed = self.cut is not None or self.tail_cut or self._shrank() or any(v.changed for v in views)
        if not found and not changed and not complete:
            return
        work = IndexRebuild(self.draft, self.verified, views, complete=complete, as_they_are=as_they_are)
        if work.needed:
            work.plan()

    def _queues(self) -> None:
        if self.store.part is not None or not self.results:
            return
        if self.store.kind is StoreKind.ROCKSDB:
            self._rows()
            return
        wanted = self._wanted()
        self._rebuild(QueueRebuild, wanted)
        if self.cut is not None:
            cut_queues(self.draft, self.cut, wanted or frozenset())

    def _rows(self) -> None:
        """Rebuild all consume queues in RocksDB if the log changes, or if rows do not fit it."""
        if not self._rows_are_wanted():
            return
        refuse_rows(self.store)
        from rmqstore.repair.rebuild.rocksdb_queues import RowsRebuild

        self._rebuild(RowsRebuild, None)

    def _rebuild(self, kind: type[QueueRebuild], wanted: frozenset[Name] | None) -> None:
        """Rebuild queues (None: all) from the log."""
        self.rebuilt = wanted
        if wanted is not None and not wanted:
            return
        choices = RebuildChoices(
            allow_gaps=self.options.allow_shift, limit=self.limit, rewrite_codes=codes.CQ_WRONG_TAG in self.options.only
        )
        work = kind(self.draft, self.verified, self._views(), wanted, choices)
        work.read()
        work.plan()

    def _message_rows(self) -> None:
        """Make the rows of timed messages, half messages and the index fit the log after the repair."""
        if self.store.part is not None or self.verified.rows is None:
            return
        views = [RepairedLog.of(r, self.ends[id(r)], self.draft) for r in self.results]
        change = LogChange(self._ends_earlier, self._touches_log(renames=False), self._last_time)
        plan_message_rows(self.draft, self.verified, self.options, views, change)

    def _beside(self) -> bool:
        """Rebuild the rows of a RocksDB beside queues in files; return whether it then fits the repaired log."""
        damaged = self.verified.damaged_rows and self.options.wants_area(Area.QUEUE, Area.DIRECTORY)
        changed = self._touches_log() or any(s.path.startswith("consumequeue/") for s in self.draft.steps)
        light = self._light_problems()
        if not self.results or not (changed or damaged or light):
            return False
        from rmqstore.repair.rebuild.rocksdb_queues import plan_beside

        choices = RebuildChoices(allow_gaps=self.options.allow_shift, limit=self.limit)
        return plan_beside(self.draft, self.verified, self._views(), None, choices)

    def _light_problems(self) -> set[str]:
        """Return the problems of queues that are only in the RocksDB beside queue files, as far as they are wanted."""
        if not self.store.light_in_rocksdb:
            return {codes.CQ_TWO_ROCKSDB} & self.counts.keys()
        found = {f.code for f in self.verified.report.findings.listed if self._is_light(f) and f.problem.of_queues}
        return {code for code in found | ({codes.CQ_TWO_ROCKSDB} & self.counts.keys()) if self.options.wants(code)}

    def _is_light(self, finding: Finding) -> bool:
        name = parse_label(finding.queue)
        return name is not None and self.store.reads_rows(name[0])

    def _rows_are_wanted(self) -> bool:
        if self._touches_log() or self.cut is not None or self.salvaged.rebuild_queues or self.shortened:
            return True
        if not self.options.wants_area(Area.QUEUE, Area.BATCH_QUEUE, Area.DIRECTORY):
            return False
        found = (PROBLEMS[c] for c in self.counts if self.options.wants(c))
        areas = (Area.QUEUE, Area.BATCH_QUEUE)  # rows of batch topics are in the same database
        wrong = any(p.area in areas and (p.severity > Severity.NOTE or self.options.only) for p in found)
        return wrong or self.verified.damaged_rows

    def _wanted(self) -> frozenset[Name] | None:
        """Return queues with findings, and if anything is repaired, all that lack a unit; None: all queues.

        With a new DLedger checkpoint, messages without a unit may count as committed: no start dispatches these.
        """
        wanted = wanted_queues(self.store, self.verified, self.salvaged.rebuild_queues | self.shortened)
        if not self.options.wants_area(Area.QUEUE, Area.BATCH_QUEUE, Area.DIRECTORY):
            return self.salvaged.rebuild_queues | self.shortened
        if wanted is None:
            return None
        behind = codes.CQ_BEHIND in self.options.only or (
            codes.DL_COMMITTED in self.counts and self.options.wants(codes.DL_COMMITTED)
        )
        if wanted or self._touches_log() or behind or self._start_leaves_gaps():
            lacking = (name for name, part in self.verified.logs.queues.items() if part.missing)
            wanted |= frozenset(lacking)
        return wanted

    def _start_leaves_gaps(self) -> bool:
        """Return whether the next start of some broker version would not rebuild all queues that are behind the log.

        In DLedger mode, brokers since 5.0 dispatch from the committed position, so that they do not rebuild queues that
        are missing completely.
        """
        parts = {name: p for name, p in self.verified.logs.queues.items() if p.missing and p.messages}
        known = (name for name in parts if known_topic(self.verified.logs, name[0]))
        parts = {name: parts[name] for name in known if not self.store.reads_rows(name[0])}
        if not parts or self.store.part is not None:
            return False
        if self.store.kind is not StoreKind.PLAIN:
            return not any(state.max for state in self.verified.report.queues.values())
        tiling = self.verified.legacy.tiling if self.verified.legacy is not None else None
        for version in RUN_VERSIONS:
            forecast = simulate_start(
                self.store, tiling, version=version, options=StartOptions(thorough=False), units=self.verified.units
            )
            if not forecast.starts:
                return True
            for name, part in parts.items():
                low, high = forecast.queue_ends.get(name, (0, 0))
                if high < part.next or low > part.first or forecast.shifted_units.get(name):
                    return True
        return False

    def _touches_log(self, *, renames: bool = True) -> bool:
        homes = {self.draft.path(d) for r in self.results for d in r.queue.directories}
        steps = self.draft.steps if renames else without_renames(self.draft.steps)
        return any(step.path.rpartition("/")[0] in homes for step in steps)

    @cached_property
    def _last_time(self) -> int:
        """The latest store time (ms) of the repaired log, read from its last file if the plan changes the log."""
        latest = max((r.max_time for r in self.results), default=0)
        if self.cut is None and not self._touches_log(renames=False):
            return latest
        if self._keeps_latest(latest):
            return latest
        for result in reversed(self.results):
            view = RepairedLog.of(result, self.ends[id(result)], self.draft)
            for file in reversed(result.queue.files):
                times = [int(c.store_timestamp.max()) for c in view.chunks([file])]
                times += [m.store_timestamp for at, m in view.patched() if file.start <= at < file.stop]
                if times:
                    return min(latest, max(times))
        return 0

    def _keeps_latest(self, latest: int) -> bool:
        """Return whether the last record of the log has the latest time, and stays as it is."""
        result = self.results[-1]
        start = last_record_start(self.verified, result.wrote)
        last = message_at(result.queue, start) if start >= result.queue.start else None
        if last is None or last.store_timestamp != latest:
            return False
        view = RepairedLog.of(result, self.ends[id(result)], self.draft)
        return view.end >= result.wrote and not any(
            patch.start < start + last.size and start < patch.stop for patch in view.patches
        )

    def _end(self) -> int:
        return max(self.ends.values(), default=0)

    def _shrank(self) -> bool:
        """Return whether the log ends before messages that its queues, and possibly consumers, had."""
        return not self.options.only and (bool(self.shortened) or codes.CQ_BEYOND_LOG in self.counts)

    @property
    def _ends_earlier(self) -> bool:
        """Whether the log ends earlier than it did, by the repair or already before."""
        return self.cut is not None or self.tail_cut or self._shrank()

    def _checkpoint(self) -> None:
        last, end = self._last_time, self._end()
        kept = KeptEnd(last, end, last_record_start(self.verified, end))
        plan_checkpoint(self.draft, self.verified, self.options, kept, force=self._ends_earlier)

    def _abort(self) -> None:
        """Remove the abort file of a store with complete queues: abnormal recovery would only delete its index."""
        if self._removes_abort():
            why = "log, queues and index are complete: the next start is a normal one"
            self.draft.discard(self.store.root / "abort", why)

    def _removes_abort(self) -> bool:
        # records of an unknown format may be sound, so it is unknown what is complete
        wanted = self.options.wants(codes.BR_START_LOSES)
        if not self.store.abort or not wanted or codes.CL_UNKNOWN_MAGIC in self.counts:
            return False
        if self.store.kind in (StoreKind.DLEDGER, StoreKind.MIXED):
            # 5.4.0 truncates good units in its abnormal recovery of DLedger (48 bytes per entry, DLedgerCommitLog
            # #dledgerRecoverAbnormally) and never rebuilds them; queues that lag too far still need that recovery
            cuts = bool((self.verified.report.broker or {}).get("units_cut"))
            return (cuts or bool(self.draft.steps)) and not lag_needs_abort(self.verified, self.rebuilt)
        if self.store.kind is not StoreKind.PLAIN:
            return False
        trees = ("consumequeue", "batchconsumequeue")
        return self._touches_log(renames=False) or any(s.path.split("/")[0] in trees for s in self.draft.steps)
