"""Read messages from exported files, and encode them as records."""
