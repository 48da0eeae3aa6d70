"""Control planes of the P4 programs: one interface to a switch, two kinds of switches, one module a program."""
