"""What a broker would do at its next start, by the rules of its version."""
