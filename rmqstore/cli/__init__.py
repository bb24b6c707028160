"""One module for each command: parse, one call below, print, exit code. `output` is all that prints."""
