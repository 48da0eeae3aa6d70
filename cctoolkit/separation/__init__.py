"""The control plane of the RTT paper: RTT classes, queues and buffers for them, rules for a router.

Gomez, Kfoury, Mazloum and Crichigno, "Improving Flow Fairness in Non-programmable Networks using P4-programmable
Data Planes". ``jenks.py`` finds the classes, ``buffers.py`` sizes buffers, ``controller.py`` assigns measured flows
to queues (with two competitors in ``competitors.py``), and ``router.py`` writes the configuration of a router.
"""
