"""Planners for what lies beside log and queues; they mirror `checks.beside`."""
