"""Identify congestion controls: datasets of slots, classifiers, training, evaluation, saved models.

Names are loaded at first use. Training needs torch (extra ``train``); reading datasets and using saved models do not.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
