"""What queue disciplines and congestion controls share: parameters, state, and functions compiled from a class."""
