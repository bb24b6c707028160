"""The Spark pipeline, compared with the local commands."""
