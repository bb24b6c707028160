"""`--since-last`: reuse the result of the last run for log files that have not changed."""
