"""Plans that mend a store, which are pure, and the journal that carries them out and takes them back."""
