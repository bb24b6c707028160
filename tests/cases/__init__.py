"""Two-pass cases: one folder per way in which a store can be wrong."""
