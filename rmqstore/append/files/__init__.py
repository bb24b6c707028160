"""Writable mapped files, and flushing."""
