"""What a person reads about a capture: the summary, its findings in words, the page, the explorer."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
