"""Evidence about damaged places: what is known, and from which witness."""
