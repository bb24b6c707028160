"""Messages as tables: a chunk of records as named columns, and its ways into text, Arrow and back into records."""
