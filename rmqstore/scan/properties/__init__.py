"""Examine the property texts of a chunk of records at once."""
