/*
 * replay.c: runs files, or all files of folders, through the fuzz target, as libFuzzer would; for compilers without it.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test/jpegs.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static int replay_file(const char *path) {
  const jpeg input = read_jpeg(path);
  if (input.length < 0) return 0;
  fprintf(stderr, "%s\n", path); /* the last one named is the one that failed */
  LLVMFuzzerTestOneInput(input.data, (size_t)input.length);
  free(input.data);
  return 1;
}

static int replay_folder(const char *folder, DIR *directory) {
  int files = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.') files += replay_file(path);
  }
  return files;
}

int main(int count, char **arguments) {
  int files = 0;
  for (int i = 1; i < count; i++) {
    DIR *directory = opendir(arguments[i]);
    const int found = directory ? replay_folder(arguments[i], directory) : replay_file(arguments[i]);
    if (directory) closedir(directory);
    if (!found && !directory) fprintf(stderr, "%s: cannot be read\n", arguments[i]);
    files += found;
  }
  printf("%d files replayed\n", files);
  return files == 0;
}
