"""Consume queues in a simulated start."""
