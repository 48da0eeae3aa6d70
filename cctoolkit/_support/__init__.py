"""What every room needs and none owns: files, processes, the terminal, words, arguments, compiled algorithms."""
