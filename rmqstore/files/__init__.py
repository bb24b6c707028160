"""Where bytes are, read-only: a store's directories, its files as one address space, broker.conf."""
