"""New files, written as a broker writes them: CommitLog, consume queues, index, DLedger."""
