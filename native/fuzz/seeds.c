/*
 * seeds.c: writes the corpus that fuzzing starts from: small files of every kind, each with other options.
 *
 *   seeds FOLDER
 */
#include <stdio.h>
#include <stdlib.h>

#include "../test/jpegs.h"

enum { FILES = 120, OPTIONS = 10, MOST_BYTES = 1600 };

static recipe seed_recipe(int i) {
  recipe r = random_recipe(5000 + (uint64_t)i, 40);
  if (r.tables != TABLES_OPTIMISED && i % 3) r.tables = TABLES_OPTIMISED; /* the others take 400 bytes */
  if (r.content == CONTENT_COEFFICIENTS || r.content == CONTENT_NOISE) r.width = r.width % 20 + 1, r.height = r.height % 20 + 1;
  if (i % 2) r.dress &= ~DRESS_TAIL;
  return r;
}

static int write_seed(const char *folder, int i) {
  const recipe r = seed_recipe(i);
  const jpeg image = make_jpeg(&r);
  dice d = dice_of((uint64_t)i);
  uint8_t options[OPTIONS];
  char path[4096];
  for (int k = 0; k < OPTIONS; k++) options[k] = (uint8_t)roll(&d);
  options[OPTIONS - 2] = (uint8_t)((options[OPTIONS - 2] & 0xFC) | (i & 1)); /* an index made for the file, or none */
  options[OPTIONS - 1] = 0;
  options[4] &= 0x7F, options[5] &= 0x7F;
  snprintf(path, sizeof path, "%s/%03d", folder, i);
  FILE *file = image.length <= MOST_BYTES ? fopen(path, "wb") : NULL;
  if (file) {
    fwrite(options, 1, OPTIONS, file);
    fwrite(image.data, 1, (size_t)image.length, file);
    fclose(file);
  }
  free(image.data);
  return file != NULL;
}

int main(int count, char **arguments) {
  int written = 0;
  if (count != 2) return fprintf(stderr, "usage: seeds FOLDER\n"), 2;
  for (int i = 0; i < FILES; i++) written += write_seed(arguments[1], i);
  printf("%d files\n", written);
  return 0;
}
