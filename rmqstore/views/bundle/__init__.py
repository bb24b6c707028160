"""Anonymized copies of stores: the same damage, but without names, ids, hosts and bodies of the owner."""
