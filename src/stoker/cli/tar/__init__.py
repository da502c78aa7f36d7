"""`stoker tar`: shards through UNIX pipes, the tarproc family. `app.py` knows the commands, one file each.

What they share: samples come from `inputs.py` and go to `outputs.py`, one at a time, so memory does not grow with the data;
`../progress.py` shows on standard error how much has gone through. A name ``-``, or none, is a pipe.
"""
