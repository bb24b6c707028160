"""DLedger in a simulated start."""
