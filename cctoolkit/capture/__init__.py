"""Bytes <-> packets table."""
