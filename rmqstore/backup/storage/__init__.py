"""Where a repository keeps its objects."""
