"""Carve stores from a disk whose files are gone: a device, an image of it, or fragments of files.

Every record names its own place in the log (PHYSICALOFFSET) and the CRC of its body, so that a log can be put together
again without its file system. The stages, each a module, hand on a `CarvingState`, a private database beside
the output:

    source      the bytes: a device, an image, a directory of fragments; read-only
    pieces      stretches of the source in which records follow one another, as they do in the log
    doubts      the last record of a piece, where the next block may be that of another file
    joining     records over the border of two pieces, proved by their CRC
    lives       pieces -> the logs of brokers; a log that began again at a lower offset is another life
    places      what is written of each piece
    geometry    the size of log files, from the BLANKs at their ends
    building    a store of each life, with queues, index and checkpoint rebuilt from its log
    documents   configuration files

A record counts only if it proves itself: lengths that add up, the CRC of its body, its own CRC if it has one, and a
place in the log that is as far from the start of a sector as its place in the source. Whatever lies within a proven
record belongs to its body.

In this package, *source* positions are bytes from the start of the source, and *offsets* are those of the log.
"""
