"""The command line: arguments in, calls out."""
