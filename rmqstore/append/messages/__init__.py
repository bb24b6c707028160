"""A message to be appended, and its record."""
