"""`python -m kwire.cli`: run the command line where the `kwire` script is not on the path."""

from kwire.cli import main

if __name__ == "__main__":
    main()
