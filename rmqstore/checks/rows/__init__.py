"""Checks of the rows in rocksdbstore/."""
