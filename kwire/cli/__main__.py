"""`python -m kwire.cli`: the command line, for where the `kwire` script is not on the path."""

from kwire.cli import main

if __name__ == "__main__":
    main()
