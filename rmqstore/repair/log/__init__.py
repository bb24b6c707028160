"""The log as it will be after the repair."""
