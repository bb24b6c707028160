"""A copy of a store that can be given away: the same damage, but no names, ids, hosts or bodies of its owner."""
