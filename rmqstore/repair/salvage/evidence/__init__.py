"""Evidence about damaged places: what is known, and which witness says so."""
