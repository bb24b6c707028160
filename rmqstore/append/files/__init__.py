"""Writable MappedFile and MappedFileQueue, and flushing."""
