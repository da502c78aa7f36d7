"""The command: `main.py` lists the commands, one file each. Text is made here and nowhere else in the library."""
