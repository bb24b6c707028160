"""Write stores as a broker does: commitlog, consume queues, index, DLedger."""
