"""What the rest of the package stands on and no user calls."""
