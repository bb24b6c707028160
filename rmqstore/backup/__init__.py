"""Backup and restore of stores: repositories with snapshots, in a directory or in object storage."""

MARKER = "rmqstore-repository.json"
"""The name of the file that makes a directory a repository."""
