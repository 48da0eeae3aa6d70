"""What the book shows of kept results that no experiment makes."""
