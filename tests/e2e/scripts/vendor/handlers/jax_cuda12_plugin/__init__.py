"""Stands for a vendor's package with handlers: the same functions, with handlers of our own."""
