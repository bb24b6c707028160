"""The data sources `rmqstore.*`: planning in the driver, reading in the executors."""
