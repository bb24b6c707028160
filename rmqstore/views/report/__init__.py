"""The data of reports: of a store, and of one repair."""
