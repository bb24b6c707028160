"""The table of problems, and findings, which are rows of a report."""
