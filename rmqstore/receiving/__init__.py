"""Follow a live master: its log over the HA port, into a store of its own in a repository, and snapshots of that.

`proof` decides which bytes are records, `spool` keeps them, `master` says who the peer is and whether its history is
ours, `receive` is the loop. What a master says is never believed: offsets must follow one another, and records must
prove themselves.
"""
