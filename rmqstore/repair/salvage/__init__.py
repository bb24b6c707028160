"""Salvage: cover damage with valid records of the same length, and mend what can be proved."""
