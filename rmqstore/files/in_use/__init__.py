"""Who uses a store: the lock, and processes that have its files open."""
