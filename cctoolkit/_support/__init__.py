"""Helpers that know nothing of packets, captures or congestion control."""
