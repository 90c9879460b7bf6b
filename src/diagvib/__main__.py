"""`python -m diagvib`."""

from diagvib.cli import main

main()
