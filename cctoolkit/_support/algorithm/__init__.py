"""What AQMs and congestion controls have in common: parameters, state, and functions compiled from a class."""
