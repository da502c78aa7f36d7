"""The command: `main.py` knows the commands, one file each. Text is made here and nowhere else in the library."""
