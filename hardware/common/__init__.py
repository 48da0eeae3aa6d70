"""What programs share: P4 includes, the interface to a switch with its two implementations, and the frame of a
control plane and of an experiment."""
