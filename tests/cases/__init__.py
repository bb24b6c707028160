"""Two-pass cases: one folder per kind of damage to a store; see README.md."""
