"""What lies beside log and queues, one file for each part of a store."""
