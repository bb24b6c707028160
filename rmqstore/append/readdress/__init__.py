"""Build a plain store from the messages of another store, with new physical offsets."""
