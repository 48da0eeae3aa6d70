"""``python -m cctoolkit`` is ``cct``, for where scripts of packages are not on the path."""

from .cli import main

if __name__ == "__main__":
    main()
