"""The log after the repair, and what its records need in queues and index."""
