/*
 * layout.c: how this build lays out the structs of stoker.h, for callers that lay them out too.
 */
#include <stddef.h>

#include "internal.h"
#include "kernel_language.h"
#include "device_picture.h"

#define STRUCT(type) {#type, -1, (int64_t)sizeof(type)}
#define FIELD(type, field) {#field, (int64_t)offsetof(type, field), (int64_t)sizeof(((type *)0)->field)}

/* As many fields of a struct as are named; up to 17. */
#define F1(t, a) FIELD(t, a)
#define F2(t, a, ...) FIELD(t, a), F1(t, __VA_ARGS__)
#define F3(t, a, ...) FIELD(t, a), F2(t, __VA_ARGS__)
#define F4(t, a, ...) FIELD(t, a), F3(t, __VA_ARGS__)
#define F5(t, a, ...) FIELD(t, a), F4(t, __VA_ARGS__)
#define F6(t, a, ...) FIELD(t, a), F5(t, __VA_ARGS__)
#define F7(t, a, ...) FIELD(t, a), F6(t, __VA_ARGS__)
#define F8(t, a, ...) FIELD(t, a), F7(t, __VA_ARGS__)
#define F9(t, a, ...) FIELD(t, a), F8(t, __VA_ARGS__)
#define F10(t, a, ...) FIELD(t, a), F9(t, __VA_ARGS__)
#define F11(t, a, ...) FIELD(t, a), F10(t, __VA_ARGS__)
#define F12(t, a, ...) FIELD(t, a), F11(t, __VA_ARGS__)
#define F13(t, a, ...) FIELD(t, a), F12(t, __VA_ARGS__)
#define F14(t, a, ...) FIELD(t, a), F13(t, __VA_ARGS__)
#define F15(t, a, ...) FIELD(t, a), F14(t, __VA_ARGS__)
#define F16(t, a, ...) FIELD(t, a), F15(t, __VA_ARGS__)
#define F17(t, a, ...) FIELD(t, a), F16(t, __VA_ARGS__)
#define F18(t, a, ...) FIELD(t, a), F17(t, __VA_ARGS__)
#define F19(t, a, ...) FIELD(t, a), F18(t, __VA_ARGS__)
#define F20(t, a, ...) FIELD(t, a), F19(t, __VA_ARGS__)
#define F21(t, a, ...) FIELD(t, a), F20(t, __VA_ARGS__)

static const stk_field LAYOUT[] = {
    STRUCT(stk_records),
    F10(stk_records, start, length, crc, seal, rows, fields, ends, fds, files, blocks),
    STRUCT(stk_file_blocks),
    F5(stk_file_blocks, size, count, keys, data, lengths),
    STRUCT(stk_fault),
    F2(stk_fault, where, message),
    STRUCT(stk_member),
    F6(stk_member, header, start, length, sample, field, crc),
    STRUCT(stk_tar_info),
    F11(stk_tar_info, position, samples, ignored, ended, forgotten, keys, key_bytes, fields, field_bytes, names, name_bytes),
    STRUCT(stk_wanted),
    F6(stk_wanted, name, name_length, kind, count, out, also),
    STRUCT(stk_feature_stat),
    F4(stk_feature_stat, kind, least, most, present),
    STRUCT(stk_jpeg_info),
    F7(stk_jpeg_info, width, height, components, progressive, scans, supported, orientation),
    STRUCT(stk_augment),
    F6(stk_augment, kind, mirrored, relative, fill, probability, magnitude),
    STRUCT(stk_choice),
    F1(stk_choice, effect),
    STRUCT(stk_op),
    F3(stk_op, kind, stream, p),
    STRUCT(stk_program),
    F16(stk_program, seed, max_pixels, max_scans, channels, layout, out_type, exact, lenient, decoder, n_ops, orient, scale, bias,
        ops, choices, n_choices),
    STRUCT(stk_row),
    F16(stk_row, status, width, height, out_width, out_height, flip, shrink, warnings, decoder, seek, dest, clip, view, matrix,
        where, message),
    STRUCT(stk_spans),
    F4(stk_spans, data, size, starts, lengths),
    STRUCT(stk_files),
    F3(stk_files, names, starts, count),
    STRUCT(stk_images),
    F7(stk_images, pixels, count, stride, row_stride, width, height, channels),
    STRUCT(stk_reading),
    F14(stk_reading, table, fields, width, behind, gap, image, at, lengths, status, wanted, n_wanted, cells, bad, pixels),
    STRUCT(stk_stored_seeks),
    F5(stk_stored_seeks, table, buffer, capacity, sums, kept),
    STRUCT(stk_input),
    F12(stk_input, kind, count, which, slots, boxes, from, seeks, buffer, capacity, needed, done, wrong),
    STRUCT(stk_pictures),
    F15(stk_pictures, decoder, program, count, positions, epoch, out_width, out_height, out, out_stride, rows, bad, read_ns,
        read_cpu_ns, read_bytes, load),
    STRUCT(stk_keep),
    F3(stk_keep, memory, capacity, used),
    STRUCT(stk_fetch),
    F3(stk_fetch, from, to, size),
    STRUCT(stk_device_load),
    F21(stk_device_load, memory, capacity, slots, most_pictures, most_device_bytes, pictures, full, data_at, data_end, errors_at,
        coefficients_at, work_at, device_bytes, blocks, work_bytes, chunks, tiles, keep, fetches, fetched, unfinished),
    STRUCT(stk_device_picture),
    STRUCT(stk_device_launch),
    F15(stk_device_launch, pictures, data, errors, coefficients, work, out, out_stride, count, out_width, out_height, channels,
        planar, floats, scale, bias),
    STRUCT(stk_box),
    F6(stk_box, first, run_bytes, runs, run_step, planes, plane_step),
};

const stk_field *stk_layout(int64_t *count) {
  *count = (int64_t)(sizeof LAYOUT / sizeof *LAYOUT);
  return LAYOUT;
}
