"""Backup and restore of stores: repositories with snapshots, in a directory or in object storage."""
