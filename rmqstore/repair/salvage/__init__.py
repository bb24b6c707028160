"""Salvage: repairs damage within a log.

Only the log contains the messages, but many other parts of a store have some fields of each message. Salvage uses all
of them as witnesses, and decides for every damaged place what its bytes were, or that its message is lost. Read the
modules in this order:

1. `evidence/` collects what is known. `places.py` finds the damaged spans of each file and the good records around
   them. `table.py` has the evidence table, rows of (place, field, value, witness): consume queue units that point into
   damage, gaps in the queue offsets, consumer progress. It is filled once per recovery.
2. `layout.py` divides each span into cells, one for each record that was there, as far as units, framing and DLedger's
   index show. `neighbours.py` extends spans that are too short for a record.
3. `solve.py` finds the answer for each cell: `Keep`, `Mended` or `Lost`. It tries `candidates/`: the flipped bit that a
   CRC locates, fields with the values of the witnesses, a readable property text. `framed.py` does the same for records
   with valid framing if a witness contradicts one of their fields.
4. `steps.py` turns the answers into the steps of a plan. `fillers.py` builds the records that replace lost ones, so
   that all later messages keep their queue offsets. `numbering.py` continues index and term in DLedger's headers.
5. `loss.py` counts what is lost. `log_end.py` plans the end of a log.

`salvage.py` runs all of it. `proved_records.py` is for plans that do not change the log.

Two rules apply everywhere. The solver never takes a candidate that a witness contradicts, nor one of several that fit.
And a new witness is a row of the table (`Evidence.rows`), a new kind of candidate a function in `candidates/`, but
never another pass.
"""
