"""A repair as a value: steps, contents, plan, its JSON and its text. Pure."""
