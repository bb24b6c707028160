"""The only code that changes an existing file: apply, undo, resume."""
