"""Texts as Java and people write them: Java strings, control characters, times."""
