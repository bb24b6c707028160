"""What bytes mean: layouts, parsers and builders. No I/O; the clock is read only for times such as `-2h`."""
