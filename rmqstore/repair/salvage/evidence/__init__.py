"""What is known about damaged places, and who says so."""
