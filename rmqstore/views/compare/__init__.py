"""Two replicas, record by record."""
