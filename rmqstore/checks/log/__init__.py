"""The pass over the log, and its findings."""
