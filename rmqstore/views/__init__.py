"""The results of reading commands: info, dump, find, usage, export, compare and others."""
