"""How large an image may be before it is taken for an attack or a mistake."""

#: pixels of an image, checked before memory is taken; `.image(max_pixels=)` and `.decode(max_pixels=)` change it
MAX_PIXELS = 100_000_000
