"""`python -m diagvib`."""

from diagvib.cli import main

if __name__ == "__main__":
    main()
