"""`python -m gammafl` is `gammafl`: for environments whose programs are not on the path."""

from gammafl.cli.main import main

main()
