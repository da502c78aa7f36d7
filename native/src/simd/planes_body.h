/*
 * planes_body.h: what the files planes_<isa>.c have in common.
 *
 * Before it stand V, a vector of PIXELS bytes; convert, which makes red, green and blue of a block of pixels; interleave, which
 * writes them as pixels; and store, which writes one of them. A file that does all this in its own way defines no V.
 */

/* A loop of its own for each colour. */
#define EACH_COLOUR(loop, ...)                 \
  switch (colour) {                            \
    case STK_YCC:                              \
      loop(lines, STK_YCC, __VA_ARGS__);       \
      break;                                   \
    case STK_RGB:                              \
      loop(lines, STK_RGB, __VA_ARGS__);       \
      break;                                   \
    case STK_GRAYSCALE:                        \
      loop(lines, STK_GRAYSCALE, __VA_ARGS__); \
  }

#ifdef V

/* The last block of a line ends where the line does, and does some pixels again; a line shorter than one goes through `few`. */
INLINE void interleaved(const int16_t *const from[3], stk_colour colour, int32_t count, uint8_t *out) {
  const int gray = colour == STK_GRAYSCALE;
  const int16_t *const lines[3] = {from[0], gray ? NULL : from[1], gray ? NULL : from[2]};
  V rgb[3];
  if (count < PIXELS) {
    uint8_t few[3 * PIXELS];
    convert(lines, colour, 0, rgb);
    interleave(rgb, few);
    memcpy(out, few, 3 * (size_t)count);
    return;
  }
  for (int32_t i = 0; i < count; i += PIXELS) {
    const int64_t at = i + PIXELS <= count ? i : count - PIXELS;
    convert(lines, colour, at, rgb);
    interleave(rgb, out + 3 * at);
  }
}

INLINE void planar(const int16_t *const from[3], stk_colour colour, int32_t count, uint8_t *const to[3]) {
  const int gray = colour == STK_GRAYSCALE, n = gray ? 1 : 3;
  const int16_t *const lines[3] = {from[0], gray ? NULL : from[1], gray ? NULL : from[2]};
  uint8_t *const out[3] = {to[0], gray ? NULL : to[1], gray ? NULL : to[2]};
  V rgb[3];
  if (count < PIXELS) {
    uint8_t few[PIXELS];
    convert(lines, colour, 0, rgb);
    for (int k = 0; k < n; k++) {
      store(few, rgb[k]);
      memcpy(out[k], few, (size_t)count);
    }
    return;
  }
  for (int32_t i = 0; i < count; i += PIXELS) {
    const int64_t at = i + PIXELS <= count ? i : count - PIXELS;
    convert(lines, colour, at, rgb);
    for (int k = 0; k < n; k++) store(out[k] + at, rgb[k]);
  }
}

#endif
