"""What is measured against what. ``make bench`` runs all; results are printed, never asserted."""
