"""The side-by-side measurements: see README.md in this folder."""
