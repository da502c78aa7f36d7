"""How large an image may be before it is taken for an attack or a mistake."""

#: pixels of an image, checked before memory is taken; `.image(max_pixels=)` and `.decode(max_pixels=)` change it
MAX_PIXELS = 100_000_000

#: scans of a JPEG; each costs a pass over the whole image, and a few bytes are enough for one
MAX_SCANS = 100
