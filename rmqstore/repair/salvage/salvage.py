"""plan_salvage: repairs damage within the logs, from the evidence to the steps of a plan. Pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rmqstore.checks.log.delay_levels import delay_levels
from rmqstore.checks.problems import codes
from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import message as records
from rmqstore.formats.message import OP_TOPICS
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.plan.wording import first_few
from rmqstore.repair.salvage.evidence.places import Damage, Neighbours, entries_begin, find_damage, missing_front
from rmqstore.repair.salvage.evidence.table import Evidence, Known, Ranges
from rmqstore.repair.salvage.framed import FramedRecords
from rmqstore.repair.salvage.layout import SpanLayout, place
from rmqstore.repair.salvage.loss import count_missing, count_unnamed
from rmqstore.repair.salvage.neighbours import take_in_blanks, take_in_neighbours
from rmqstore.repair.salvage.numbering import number_entries
from rmqstore.repair.salvage.reach import reach
from rmqstore.repair.salvage.result import SalvageResult
from rmqstore.repair.salvage.solve import Solver
from rmqstore.repair.salvage.steps import Steps
from rmqstore.texts import Placed, Text

MOST_FILLERS = 1000
"""Maximum number of visible fillers without --accept-fillers."""


def plan_salvage(evidence: Evidence, options: RecoverOptions) -> SalvageResult:
    """Plan the steps that repair all damage before the last record that is good or can be proved."""
    return _Salvage(evidence, options).result()


class _Salvage:
    def __init__(self, evidence: Evidence, options: RecoverOptions) -> None:
        self.evidence = evidence
        self.store = evidence.store
        self.logs = evidence.logs
        self.findings = evidence.verified.report.findings
        self.options = options
        self.levels = delay_levels(evidence.store)
        neighbours = Neighbours(evidence.logs.results, options.now_ms or int(time.time() * 1000))
        self.solver = Solver(evidence, neighbours, self.levels, accept_odds=options.accept_odds)
        self.steps = Steps(evidence, neighbours, self.levels)
        self.refusals: list[str] = []
        self.missing = False
        self.left_missing: list[tuple[int, int]] = []

    def result(self) -> SalvageResult:
        steps, evidence = self.steps, self.evidence
        damages = self._damages()
        framed = FramedRecords(evidence).solve()
        framed.fixes = {at: fix for at, fix in framed.fixes.items() if not self._is_link(fix.log.queue.find(at))}
        evidence.corrected = framed.slots()
        spans = [(d.start, d.stop) for d in damages]
        known, ranges = evidence.about(spans), Ranges(spans)
        evidence.add_ends(known, ranges)
        steps.draft.notes.extend(known.notes)
        layouts = self.solver.layouts(damages, known)
        for layout in layouts:
            layout.merge = self.options.merge_neighbours
            self.solver.solve(layout, known)
        self._place(layouts, known)
        numbers = number_entries(self.store, layouts, entries_begin(evidence))
        for layout in layouts:
            if layout.refused:
                self.refusals.append(layout.refused)
            else:
                steps.cover(layout, numbers)
        for fix in framed.fixes.values():
            steps.fix(fix)
        self.refusals.extend(framed.refusals)
        self._blanks()
        self._gaps(framed)
        count_unnamed(steps.loss, evidence, layouts, evidence.open_ends(known, ranges))
        if self.left_missing:
            cells = [c.expected.slot for layout in layouts for c in layout.cells if c.expected is not None]
            counted = {slot.key for slot in (*cells, *steps.unplaced)}
            count_missing(steps.loss, evidence, self.left_missing, counted)
        return self._assemble(framed)

    # --- damage and layouts ---------------------------------------------------------------------------------------

    def _damages(self) -> list[Damage]:
        """Return the spans to repair."""
        out: list[Damage] = []
        for log in self.logs.results:
            front = missing_front(self.evidence, log)
            for damage in find_damage(log, end=reach(self.evidence, log), front=front):
                if damage.file is None and not self.options.accept_fillers:
                    self.missing = True
                    if front is None or damage.start >= front[1]:  # `missing_between` counts those between two logs
                        self.left_missing.append((damage.start, damage.stop))
                    self.refusals.append(
                        Text(
                            "{home} is missing: --accept-fillers replaces it with a file of fillers",
                            home=damage.home.name,
                        )
                    )
                elif not self._is_link(damage.file):
                    out.append(damage)
        out = take_in_blanks(out)
        merge = self.options.merge_neighbours
        return take_in_neighbours(out, self.evidence.progress, self.levels) if merge else out

    def _is_link(self, file: MappedFile | None) -> bool:
        """Return whether a file is a symbolic link, through which no repair writes; its damage stays."""
        entry = self.store.files.examined(file.path) if file is not None else None
        if file is None or entry is None or entry.link is None:
            return False
        text = Text(
            "{relative} is a symbolic link, and a repair never writes through a link: its damage stays "
            "until the file is in the place of the link",
            relative=self.store.relative(file.path),
        )
        if text not in self.refusals:
            self.refusals.append(text)
        return True

    def _place(self, layouts: Sequence[SpanLayout], known: Known) -> None:
        """Assign lost queue offsets without a place to free bytes between the records around them, in their order."""
        cells = [c for layout in layouts for c in layout.cells]
        claimed = {c.expected.slot.key for c in cells if c.expected is not None}
        between = [row for row in known.between if row[2].key not in claimed]
        for layout in layouts:  # units that point into the middle of a record
            start, stop = layout.damage.start, layout.damage.stop
            inside = (expected.slot for at, expected in known.at.items() if start <= at < stop)
            between += [(start - 1, stop, slot) for slot in inside if slot.key not in claimed]
        self.steps.unplaced.extend(place(layouts, between))
        for layout in layouts:
            layout.finish()

    def _blanks(self) -> None:
        """Correct the size of BLANKs that do not fill the rest of their file."""
        log = next((r for r in self.logs.results if not r.body_offset), None)
        for finding in self.findings.listed:
            left = finding.facts.get("left")
            file = log.queue.find(finding.offset) if log is not None else None
            if finding.code != codes.CL_BLANK_SIZE or file is None or not isinstance(left, int):
                continue
            size, at = records.build_blank(left)[:4], finding.offset - file.start
            self.steps.draft.overwrite(file.path, at, size, Text("the size of a BLANK is the rest of its file"))
            self.steps.covered.append((finding.offset, finding.offset + records.BLANK_SIZE))

    def _gaps(self, framed: FramedRecords) -> None:
        """Report queue offsets without a record: a rebuilt queue would be shifted."""
        steps, shift = self.steps, self.options.allow_shift
        for slot in steps.unplaced:
            steps.loss.add(slot)
            steps.rebuild.add((slot.topic, slot.queue_id))
        if steps.unplaced:
            some = first_few([str(slot) for slot in steps.unplaced])
            text = Text("no room for a filler for {some}: a queue that a broker rebuilds is shifted by them", some=some)
            hint = Text("--accept-fillers makes room") if self.missing else Text("--accept-shift accepts that")
            (steps.draft.notes if shift else steps.draft.decisions).append(
                text if shift else Placed("{text}; {hint}", text=text, hint=hint)
            )
        steps.rebuild.update(framed.torn)
        (steps.draft.notes if shift else self.refusals).extend(framed.gaps)

    # --- result ---------------------------------------------------------------------------------------------------

    def _assemble(self, framed: FramedRecords) -> SalvageResult:
        steps, draft = self.steps, self.steps.draft
        visible = sum(f.kind == "visible" for f in steps.fillers)
        if visible > MOST_FILLERS and not self.options.accept_fillers:
            draft.decisions.append(
                Text(
                    "{visible:,} lost messages would get a visible filler; --accept-fillers accepts that",
                    visible=visible,
                )
            )
        draft.notes.extend(steps.loss.notes)
        if visible and self.evidence.progress.unreadable:
            draft.notes.append(
                Text(
                    "unknown which groups will get the fillers: {unreadable}",
                    unreadable=self.evidence.progress.unreadable,
                )
            )
        if any(f.topic in OP_TOPICS for f in steps.fillers):
            draft.notes.append(Text("a lost op message ended transactions: the broker may ask their producers again"))
        return SalvageResult(
            steps=tuple(draft.steps),
            spans=tuple(draft.spans),
            fillers=tuple(sorted(steps.fillers, key=lambda f: f.offset)),
            restored=tuple(sorted(steps.restored, key=lambda r: r.offset)),
            damaged=tuple(steps.damaged),
            rebuild_queues=frozenset(steps.rebuild),
            loss=steps.loss.loss(),
            given_up=steps.given_up,
            decisions=tuple(draft.decisions),
            refusals=tuple(self.refusals),
            notes=tuple(draft.notes),
            unproved=Counter(code for _, code in framed.left),
        )
