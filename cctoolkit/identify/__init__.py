"""Which congestion control is that? Datasets of slots, classifiers, their training and evaluation, saved models.

Names are loaded at first use: reading a dataset or using a saved model needs no torch, training does (extra ``train``).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
