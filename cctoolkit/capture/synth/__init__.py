"""Synthetic captures that resemble real ones."""
