"""The proof that comes with a plan, independent of the problem that was solved."""
