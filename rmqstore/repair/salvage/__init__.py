"""Salvage: what becomes of the damage within a log.

The log is the only place that holds the messages, but many other places know something about each of them. Salvage asks
all of them, and decides for every damaged place what its bytes were, or that its message is lost. Read the modules in
this order:

1. `evidence/` collects what is known. `places.py` finds the damaged spans of each file and the good records around
   them. `table.py` holds the evidence table, rows of (place, field, value, witness): consume queue units that point
   into damage, gaps in the queue offsets, consumer progress. It is filled once for a recovery.
2. `layout.py` divides each span into cells, one for each record that was there, as far as units, frames and DLedger's
   index tell. `neighbours.py` widens spans that are too short for a record.
3. `solve.py` answers for each cell: `Keep`, `Mended` or `Lost`. It asks further `sources.py` (a replica) first, then
   `candidates/`: the one flipped bit that a CRC points to, fields set to what the witnesses say, a readable property
   text. `framed.py` does the same for records that frame, while a witness contradicts one of their fields.
4. `steps.py` turns the answers into the steps of a plan; `fillers.py` builds the record that takes the place of a lost
   one, so that every message behind it stays readable at its queue offset. `numbering.py` gives DLedger's headers.
5. `loss.py` is the ledger of what is gone. `log_end.py` plans the end of a log, behind which nothing follows.

`salvage.py` runs all of it. `proved_records.py` is for plans that do not change the log.

Two rules hold everywhere. A candidate that a witness contradicts is never taken, nor one of several that fit. And a new
witness is a row of the table (`Evidence.rows`), a new kind of candidate a function in `candidates/`: not a new pass.
"""
