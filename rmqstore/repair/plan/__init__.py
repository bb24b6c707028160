"""A repair as a value: steps, contents and plan, with JSON and text forms. Only the builder reads the store."""
