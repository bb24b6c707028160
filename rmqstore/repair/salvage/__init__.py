"""Salvage: repairs damage within a log.

Only the log contains the messages, but many other parts of a store have some fields of each message. Salvage uses all
of them as witnesses, and decides for every damaged place what its bytes were, or that its message is lost. Read the
modules in this order:

1. `evidence.py` collects what is known in a table, rows of (place, field, value, witness): consume queue units
   that point into damage, gaps in the queue offsets, consumer progress. It is filled once per recovery. `places.py`
   finds the damaged spans of each file and the good records around them.
2. `layout.py` divides each span into cells, one for each record that was there, as far as units, framing and DLedger's
   index show, and numbers the DLedger entries.
3. `solve.py` decides for each cell whether a record is `Kept` there. It tries the candidates of `candidates.py`: the
   flipped bit that a CRC locates, fields with the values of the witnesses, a readable property text. It extends spans
   that are too short for a record. `framed.py` does the same for records with valid framing if a witness contradicts
   one of their fields.
4. `salvage.py` runs all of it, turns the answers into the steps of a plan, and plans the end of a log. `fillers.py`
   builds the records that replace lost ones, so that all later messages keep their queue offsets.

What is lost is counted by the account of the planned store (`checks/account.py`).

Two rules apply everywhere. The solver never takes a candidate that a witness contradicts, nor one of several that fit.
And a new witness is a row of the table (`Evidence.rows`), a new kind of candidate a function in `candidates.py`, but
never another pass.
"""
