"""The data sources `rmqstore.*`: the driver plans, executors read."""
