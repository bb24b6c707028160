"""The tests of rmqstore; `tests.stores` provides the real stores, and `tests.damage` breaks copies of them."""
