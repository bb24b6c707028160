"""The file formats of a store: layouts, parsers and builders. No I/O; only `parse_time` reads the clock."""
