"""What the commands share: options, filters, settings, metrics, help, and the steps of a change to a store."""
