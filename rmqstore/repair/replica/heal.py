"""plan_with_replicas: restores damaged and missing bytes from replicas, then repairs the rest.

It has two stages. The first one handles only the log: it finds the places that need bytes, proves the replicas, and
takes their bytes. The second one examines the store with these bytes, and plans the usual recovery for it, so that
consume queues, index, timer and remaining damage are judged by the healed log. The result is one plan for both stages.

`find_offers` says which of several stores can heal a store, with the same proofs, but without a plan.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmqstore.brokers.replicas import replica_role, seed_command
from rmqstore.checks.examine import examine
from rmqstore.checks.log.commitlog import LogResult
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json
from rmqstore.documents.plan import Plan
from rmqstore.errors import Refused, RmqStoreError, StoreIsLive
from rmqstore.files.mapped_file_queue import MappedFileQueue, message_at
from rmqstore.files.store import Store
from rmqstore.formats.properties import UNIQ_KEY, parse_properties
from rmqstore.repair.plan.plan_builder import PlanBuilder, first_notes
from rmqstore.repair.plan.plan_text import store_time
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.planned import FirstParts, examine_again
from rmqstore.repair.recover import plan_recovery
from rmqstore.repair.repaired_log import Span, joined, meets
from rmqstore.repair.replica.healed_store import HealedStore, build, merged, messages_in
from rmqstore.repair.replica.proof import LostEnd, Proof, common_epoch_end, compare_lost_end, fork, prove, proved_until
from rmqstore.repair.replica.replica import Replica, ReplicaLog, filler_spans, refuse_same
from rmqstore.repair.replica.sources import (
    OUTVOTED,
    HealOptions,
    Place,
    Sources,
    earlier_files,
    find_places,
    find_sources,
    judge,
)
from rmqstore.repair.store_guard import refuse_overlap, refuse_whole
from rmqstore.texts import Text, first_few
from rmqstore.texts import joined as joined_texts

FACT = "restored"
"""Name of the fact of a plan that lists what comes from which replica."""


def plan_with_replicas(
    store: Store,
    verified: Verified,
    replicas: Sequence[Replica],
    heal_options: HealOptions,
    options: RecoverOptions,
    how: VerifyOptions | None = None,
) -> Plan:
    """Plan the repair of a store that was just examined; `how` are the options to examine the healed store.

    Errors: Refused if a store is not a replica of this one, is the store itself, or has nothing for it; StoreIsLive;
    NoSpace; those of `plan_recovery`.
    """
    work = Healing(store, verified, replicas, heal_options)
    work.check()
    sources = work.sources()
    if not sources.taken:
        if not work.places:
            raise Refused(work.nothing_needed(), Text("recover without --replica repairs everything else"))
        reasons = joined_texts([*work.notes, *sources.notes][:3], "; ")
        raise Refused(
            Text("nothing can be taken from the replicas: {reasons}", reasons=reasons),
            Text("recover without --replica repairs the store without them"),
        )
    return plan_healing(work, sources, options, how)


def plan_healing(work: Healing, sources: Sources, options: RecoverOptions, how: VerifyOptions | None) -> Plan:
    """Plan to take these bytes, and to repair what is then left. Arguments and errors: as `plan_with_replicas`."""
    healed = build(work.store, sources.taken)
    how, known = how or VerifyOptions(), work.verified.known
    if how.units is None and isinstance(known, FirstParts):
        after = examine_again(healed.store, how, known)
    else:  # the units of all messages are wanted
        after = examine(healed.store, how)
    damaged = judge(after, sources.taken)
    plan = plan_recovery(healed.store, after, options)
    names = PlanBuilder(work.store)
    replicas = " and ".join(dict.fromkeys(taken.replica.name for taken in sources.taken))
    whole = merged(plan, healed, names, Text("the original bytes, from {names}", names=replicas))
    notes = first_notes([*work.notes, *sources.notes])
    if damaged:
        places = first_few([f"{at:,}" for at in damaged])
        notes.append(
            Text("properties damaged in the replica, where nothing proves the original ones: {places}", places=places)
        )
    facts: dict[str, Json] = {**plan.facts, FACT: _facts(healed, sources, work)}
    return replace(whole, notes=(*notes, *plan.notes), facts=facts)


class Healing:
    """The first stage, with the `places` that need bytes, and the `proofs` of each replica's logs."""

    def __init__(
        self, store: Store, verified: Verified, replicas: Sequence[Replica], heal_options: HealOptions
    ) -> None:
        self.store = store
        self.verified = verified
        self.replicas = replicas
        self.heal_options = heal_options
        self.places: list[Place] = []
        self.proofs: dict[tuple[str, str], Proof] = {}  # by names of log and replica
        self.unsupported: list[Place] = []  # at the end of the log, where nothing is left to compare
        self.notes: list[str] = []

    def check(self) -> None:
        """Errors: Refused if the store cannot be healed now, or if a replica is the store itself; StoreIsLive."""
        store, verified = self.store, self.verified
        refuse_whole(store, verified)
        refuse_overlap(store)
        if verified.report.live:
            raise StoreIsLive(
                Text("a broker is running on {path}: its log cannot be compared with a replica's", path=store.path)
            )
        if verified.misplaced is not None and verified.misplaced.store.is_rearranged:
            raise Refused(
                Text("log files of {path} have wrong names", path=store.path),
                Text("run `rmqstore recover` without --replica first"),
            )
        for replica in self.replicas:
            refuse_same(store, replica)

    def sources(self) -> Sources:
        """Prove the replicas, and find their bytes for the places."""
        if not self.verified.logs.results:
            raise Refused(
                Text(
                    "{path} has no log file left, so nothing proves that another store is its replica",
                    path=self.store.path,
                ),
                Text("create the store again as a copy of the replica"),
            )
        allowed: dict[Place, list[ReplicaLog]] = {}
        for log in self.verified.logs.results:
            having = [found for r in self.replicas if (found := r.log(log.body_offset)) is not None]
            places = find_places(self.store, self.verified, log, having, self.heal_options)
            if log is self.verified.logs.results[0] and not self.heal_options.extend:
                self._note_earlier_files(log, having)
            proofs = self._prove(log, having, places)
            for place in places:
                for part, proved in self._parts(place, having, proofs):
                    allowed[part] = proved
                    if not proved:
                        self._not_covered(part)
        known = {name for _, name in self.proofs}
        for replica in self.replicas:
            if replica.name not in known:
                kind = self.store.kind.value
                raise Refused(
                    Text(
                        "{replica} is not a replica: this is a {kind} store, and the replica has no such log",
                        replica=replica.name,
                        kind=kind,
                    )
                )
        self.places = list(allowed)
        return find_sources(allowed)

    def _note_earlier_files(self, log: LogResult, replicas: Sequence[ReplicaLog]) -> None:
        for place in earlier_files(log, replicas):
            names = joined_texts([one.name for one in replicas if one.queue.start <= place.start])
            words = Text(
                "this log begins at {begin:,}, and {names} still has what precedes it, from {start:,} on: --extend "
                "restores these files",
                begin=place.stop,
                names=names,
                start=place.start,
            )
            self.notes.append(words)

    def _prove(self, log: LogResult, replicas: Sequence[ReplicaLog], places: Sequence[Place]) -> Mapping[str, Proof]:
        apart = joined([*filler_spans(self.store, log), *(p.span for p in places if p.kind != OUTVOTED)])

        def wanted(span: Span) -> bool:
            return not meets(span, apart)

        found = {r.name: self._by_epochs(prove(log, r, places, wanted), r) for r in replicas}
        if self.heal_options.extend:
            forks = {r.name: fork(log, r, wanted) for r in replicas}
            found = {name: _forked(proof, forks[name]) for name, proof in found.items()}
            self._refuse_forked(log, replicas, found)
        for name, proof in found.items():
            self.proofs[log.queue.name, name] = proof
            if proof.diverges_at is not None:
                self._note_divergence(log, name, proof)
        return found

    def _refuse_forked(self, log: LogResult, replicas: Sequence[ReplicaLog], proofs: Mapping[str, Proof]) -> None:
        """Errors: Refused if the log may not be extended, because it and all replicas have different histories."""
        forks = [(proof.diverges_at, r) for r in replicas if (proof := proofs[r.name]).diverges_at is not None]
        if not forks or len(forks) < len(replicas):
            return
        at, replica = max(forks, key=lambda one: one[0])
        raise Refused(
            Text(
                "{name} diverges from this store at offset {at:,} of the {queue}, so nothing of it is appended: this "
                "store has {ours} there, and {name} {theirs}",
                name=replica.name,
                at=at,
                queue=log.queue.name,
                ours=_record_words(log.queue, log.body_offset, at),
                theirs=_record_words(replica.queue, log.body_offset, at),
            ),
            Text(
                "decide which one is right, and make the other again from it: `{theirs}` or `{ours}`",
                theirs=seed_command(replica.name, replica_role(replica.store)),
                ours=seed_command(str(self.store.path), replica_role(self.store)),
            ),
        )

    def _note_divergence(self, log: LogResult, name: str, proof: Proof) -> None:
        self.notes.append(
            Text(
                "{name} diverges from this store at offset {diverges_at:,} of the {queue}: nothing after it is taken",
                name=name,
                diverges_at=proof.diverges_at,
                queue=log.queue.name,
            )
        )

    def _by_epochs(self, proof: Proof, replica: ReplicaLog) -> Proof:
        """Let a divergence begin where the common epochs end, if the records there are damaged and prove nothing."""
        if proof.diverges_at is None:
            return proof
        end = common_epoch_end(self.store, replica)
        return replace(proof, diverges_at=end) if proof.equal_until <= end < proof.diverges_at else proof

    def _parts(
        self, place: Place, replicas: Sequence[ReplicaLog], proofs: Mapping[str, Proof]
    ) -> Iterator[tuple[Place, list[ReplicaLog]]]:
        """Divide a place into parts, each with the replicas that are proved for all of it."""
        until = {r.name: self._proved_until(place, r, proofs[r.name]) for r in replicas}
        start = place.start
        for stop in sorted({place.stop, *until.values()} - {place.start}):
            yield replace(place, start=start, stop=stop), [r for r in replicas if until[r.name] >= stop]
            start = stop

    def _proved_until(self, place: Place, replica: ReplicaLog, proof: Proof) -> int:
        if proof.covers(place):
            if place.stop < place.log.wrote:
                return place.stop
            end = compare_lost_end(self.store, self.verified, replica, place)
            if end.diverges_at is None:
                return self._supported_until(end, replica, place)
            proof = replace(proof, diverges_at=end.diverges_at)
            self.proofs[place.log.queue.name, replica.name] = proof
            self._note_divergence(place.log, replica.name, proof)
            return max(end.agreed, min(end.diverges_at, proved_until(self.store, self.verified, replica, place)))
        differs = proof.diverges_at is not None and proof.diverges_at < place.start
        if differs or place.kind == OUTVOTED:
            return place.start
        until = proved_until(self.store, self.verified, replica, place)
        if replica.replica.own:  # no other broker can have written these messages to the same queues
            end = compare_lost_end(self.store, self.verified, replica, place)
            until = max(until, end.fits) if end.diverges_at is None else min(until, end.diverges_at)
        return until

    def _supported_until(self, end: LostEnd, replica: ReplicaLog, place: Place) -> int:
        """Return up to where to take a lost end; without any witness, only with --extend.

        A DLedger entry that is not known to be committed needs this store's index entry: a group may discard it.
        """
        if place.log.body_offset:
            until = max(end.agreed, replica.committed_end(place.start))
            if until < place.stop:
                self.unsupported.append(replace(place, start=until))
                self.notes.append(
                    Text(
                        "{replica} does not know its entries after offset {until:,} to be committed, and the DLedger "
                        "index of this store does not have them: they are not taken",
                        replica=replica.name,
                        until=until,
                    )
                )
            return min(until, place.stop)
        if end.supported:
            return place.stop
        known = Text("no index entry, queue unit, epoch or rest of a message")
        if self.heal_options.extend:
            self.notes.append(
                Text(
                    "after offset {start:,}, this store has {known} to compare: only the equal records before it "
                    "show that {replica} has the same history",
                    start=place.start,
                    known=known,
                    replica=replica.name,
                )
            )
            return place.stop
        self.unsupported.append(place)
        self.notes.append(
            Text(
                "nothing proves that the messages of {replica} after offset {start:,} are those of this "
                "store: it has {known} there to compare, and two histories may be equal up to there. "
                "--extend takes them as new messages",
                replica=replica.name,
                start=place.start,
                known=known,
            )
        )
        return place.start

    def _not_covered(self, place: Place) -> None:
        if any(place.start == one.start for one in self.unsupported):
            return
        proofs = [proof for (log, _), proof in self.proofs.items() if log == place.log.queue.name]
        if not proofs:
            self.notes.append(
                Text(
                    "no replica has a {queue}: nothing is taken for offset {start:,}",
                    queue=place.log.queue.name,
                    start=place.start,
                )
            )
        elif all(proof.diverges_at is None for proof in proofs):
            self.notes.append(
                Text(
                    "no record after offset {start:,} is equal in a replica: nothing is taken for offset "
                    "{start:,} to {stop:,}",
                    start=place.start,
                    stop=place.stop,
                )
            )

    def nothing_needed(self) -> str:
        """Return why the replicas are not needed; the user may have given the stores in the wrong order."""
        text = joined_texts(
            [Text("{path} has no damage that a replica can repair", path=self.store.path), *self.notes], "; "
        )
        fillers = sum(len(filler_spans(self.store, log)) for log in self.verified.logs.results)
        if fillers and not self.heal_options.fillers:
            return Text("{text}; --heal-fillers restores what earlier repairs replaced by fillers", text=text)
        if any(replica.damaged for replica in self.replicas):
            return Text(
                "{text}, but {replicas} is damaged: are the two in the wrong order?",
                text=text,
                replicas=self.replicas[0].name,
            )
        return text


def _forked(proof: Proof, at: int | None) -> Proof:
    """Return a proof with a divergence that the comparison of all records has found."""
    if at is None or (proof.diverges_at is not None and proof.diverges_at <= at):
        return proof
    return replace(proof, equal_until=min(proof.equal_until, at), diverges_at=at)


def _record_words(queue: MappedFileQueue, body_offset: int, at: int) -> str:
    """Return in words what a log has at an offset where the other one has a record."""
    message = message_at(queue, at + body_offset)
    if message is None or message.physical_offset != at + body_offset:
        return Text("no record that starts")
    known = parse_properties(message.properties)
    return Text(
        "{topic}/{id} offset {queue_offset:,} ({key}, CRC of the body {crc:08x}, stored {time})",
        topic=message.topic_text,
        id=message.queue_id,
        queue_offset=message.queue_offset,
        key=known.get(UNIQ_KEY) or Text("without a message ID"),
        crc=message.body_crc,
        time=store_time(message.store_timestamp),
    )


def _facts(healed: HealedStore, sources: Sources, work: Healing) -> dict[str, Json]:
    """Return `{"messages", "bytes", "places": […], "replicas": […]}`."""
    places: list[Json] = []
    total: Counter[str] = Counter()
    for taken in sources.taken:
        if not taken.good:
            continue
        messages, length = messages_in(healed, taken), taken.stop - taken.start
        total["messages"] += messages
        total["bytes"] += length
        places.append(
            {
                "offset": taken.start,
                "length": length,
                "messages": messages,
                "was": taken.place.kind,
                "from": taken.replica.name,
            }
        )
    replicas: list[Json] = [
        {
            "path": name,
            "log": log,
            "equal_records": proof.equal,
            "equal_until": proof.equal_until,
            "diverges_at": proof.diverges_at,
        }
        for (log, name), proof in work.proofs.items()
    ]
    return {"messages": total["messages"], "bytes": total["bytes"], "places": places, "replicas": replicas}


@dataclass(frozen=True, slots=True)
class Offer:
    """The damaged places and bytes that a replica can restore; `command` shows the plan."""

    replica: str
    places: int
    bytes: int
    command: str


@dataclass(slots=True)
class Offers:
    """The offers for one store with a number of damaged `places`; `refused` gives the reason for each other replica."""

    places: int = 0
    offers: list[Offer] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def find_offers(store: Store, verified: Verified, replicas: Sequence[Replica]) -> Offers:
    """Find what each replica alone can restore in a damaged store, the most bytes first."""
    out = Offers()
    for replica in replicas:
        healing = Healing(store, verified, [replica], HealOptions())
        try:
            healing.check()
            sources = healing.sources()
        except RmqStoreError as e:
            out.refused[replica.name] = e.message
            continue
        out.places = max(out.places, len(healing.places))
        good = [taken for taken in sources.taken if taken.good]
        if not good:
            out.refused[replica.name] = next(iter([*healing.notes, *sources.notes]), Text("the log needs no bytes"))
            continue
        words = f"rmqstore recover {shlex.quote(str(store.path))} --replica {shlex.quote(replica.name)}"
        places, size = len({id(taken.place) for taken in good}), sum(taken.stop - taken.start for taken in good)
        out.offers.append(Offer(replica.name, places, size, words))
    out.offers.sort(key=lambda offer: -offer.bytes)
    return out
