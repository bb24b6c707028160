"""Simulates how a starting broker recovers, truncates and extends consume queues."""
