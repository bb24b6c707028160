"""Records at new addresses: a plain store built from the messages of another store."""
