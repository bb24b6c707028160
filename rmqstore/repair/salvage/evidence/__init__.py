"""What is known about damaged places: spans, queue units, neighbours, consumers."""
