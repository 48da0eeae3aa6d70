"""Captures: from bytes to the packets table and back."""
