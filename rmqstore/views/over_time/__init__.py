"""Messages over time: steps that fit a chart, and growth."""
