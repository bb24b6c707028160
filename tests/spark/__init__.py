"""The Spark pipeline against the local commands."""
