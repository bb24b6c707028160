"""The tests of rmqstore; `tests.stores` has the real stores and the ways to damage them."""
