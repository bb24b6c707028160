"""The store as it will be after the steps of a plan: its files, and its examination. Reads only."""
