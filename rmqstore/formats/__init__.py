"""What bytes mean: layouts, parsers and builders. No I/O, no clock."""
