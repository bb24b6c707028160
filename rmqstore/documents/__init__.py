"""Documents that a repair leaves in a store, and that reading and repairing share: plans and journals."""
