"""Mutants of files and datagrams, thrown at everything that reads them."""
