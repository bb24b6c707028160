"""Applies plans, undoes and resumes them: the only code that changes existing files of a store."""
