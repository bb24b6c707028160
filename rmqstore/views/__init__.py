"""What people ask of a store: info, dump, usage, export, compare."""
