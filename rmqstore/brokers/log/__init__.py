"""The commitlog in a simulated start."""
