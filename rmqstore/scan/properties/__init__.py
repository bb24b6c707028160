"""Property texts of a whole chunk of records."""
