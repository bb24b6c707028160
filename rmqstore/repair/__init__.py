"""Plans to repair a store, which are pure, and the journal that applies and undoes them."""
