"""Views of kept results that no experiment makes for the book."""
