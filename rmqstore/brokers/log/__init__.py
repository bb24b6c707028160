"""Simulates how a starting broker recovers and re-dispatches the commitlog."""
