"""Helpers shared by all packages: files, processes, the terminal, formatting, argument checks, compiled algorithms."""
