"""Run the command line by `python -m kwire.cli`, where the `kwire` script is not on the path."""

from kwire.cli import main

if __name__ == "__main__":
    main()
