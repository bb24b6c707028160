"""The records of a store as rows and text."""
