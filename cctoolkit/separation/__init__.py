"""The RTT paper's control plane: classes of RTT, queues and buffers for them, rules for a router.

Gomez, Kfoury, Mazloum and Crichigno, "Improving Flow Fairness in Non-programmable Networks using P4-programmable Data
Planes". ``jenks.py`` finds the classes, ``buffers.py`` sizes buffers, ``controller.py`` is the loop from measured
flows to queues (with two competitors in ``competitors.py``), ``router.py`` puts a decision in a router's words.
"""
