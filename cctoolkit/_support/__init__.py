"""Helpers shared by every room: files, processes, the terminal, formatting, argument checks, compiled algorithms."""
