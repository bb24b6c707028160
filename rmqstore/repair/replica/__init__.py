"""Restores original bytes from replicas: proves that they are replicas, and finds the places that need their bytes."""
