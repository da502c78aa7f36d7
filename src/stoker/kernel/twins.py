"""The same results in NumPy, slow and plain: what the tests hold the native library to.

Each function mirrors a definition in ``native/include/stoker.h``. Nothing in the package imports this at run time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_U64 = np.uint64
WEIGHT_ONE = 16384


def splitmix64(key: int, count: int) -> list[int]:
    """Return the first `count` outputs of splitmix64 started at `key`."""
    mask, out = (1 << 64) - 1, []
    for _ in range(count):
        key = (key + 0x9E3779B97F4A7C15) & mask
        z = key
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        out.append(z ^ z >> 31)
    return out


def permute(n: int, key: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Twin of ``stk_permute``: a Feistel network, walked until the value is below `n`."""
    bits = max(2, (n - 1).bit_length())
    left_bits = bits // 2
    right_bits = bits - left_bits
    keys = splitmix64(key, 8)

    def mix(value: NDArray[np.uint64], round_: int, width: int) -> NDArray[np.uint64]:
        t: NDArray[np.uint64] = (value + _U64(keys[round_])) * _U64(0x9E3779B97F4A7C15)
        t ^= t >> _U64(32)
        t *= _U64(0xD6E8FEB86659FD93)
        t >>= _U64(64 - width)
        return t

    def apply(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = x >> _U64(right_bits), x & _U64((1 << right_bits) - 1)
        for r in range(0, 8, 2):
            left = left ^ mix(right, r, left_bits)
            right = right ^ mix(left, r + 1, right_bits)
        whole: NDArray[np.uint64] = left << _U64(right_bits) | right
        return whole

    x = apply(np.asarray(positions, np.int64).astype(np.uint64))
    while (outside := x >= _U64(n)).any():
        x[outside] = apply(x[outside])
    return x.astype(np.int64)


def philox(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Philox4x32-10 of each row of `counter` (count, 4)."""
    c = [counter[:, lane].astype(np.uint64) for lane in range(4)]
    k0, k1 = key
    low = _U64(0xFFFFFFFF)
    for _ in range(10):
        a, b = _U64(0xD2511F53) * c[0], _U64(0xCD9E8D57) * c[2]
        c = [b >> _U64(32) ^ c[1] ^ _U64(k0), b & low, a >> _U64(32) ^ c[3] ^ _U64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1).astype(np.uint32)


def uniforms(seed: int, epochs: NDArray[np.uint32], positions: NDArray[np.int64], stream: int, draws: int) -> NDArray[np.float64]:
    """Twin of ``stk_uniforms``."""
    where = np.asarray(positions, np.int64).view(np.uint64)
    out = np.empty((len(where), draws), np.float64)
    for block in range((draws + 3) // 4):
        counter = np.stack(
            [where & _U64(0xFFFFFFFF), where >> _U64(32), epochs, np.full(len(where), stream << 8 | block)], axis=1
        )
        words = philox(counter.astype(np.uint32), (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
        wanted = min(4, draws - 4 * block)
        out[:, 4 * block : 4 * block + wanted] = (words[:, :wanted] + 0.5) / 4294967296.0
    return out


def weights(view: tuple[float, float], count: int, clip: tuple[int, int]) -> NDArray[np.int64]:
    """Return the (count, clip[1]) matrix of integer weights of one axis; each row sums to 16384."""
    scale = (view[1] - view[0]) / count
    support = max(1.0, scale)
    matrix = np.zeros((count, clip[1]), np.int64)
    for i in range(count):
        center = view[0] + (i + 0.5) * scale
        low = max(int(np.floor(center - support + 0.5)), clip[0])
        high = min(int(np.floor(center + support + 0.5)), clip[1])
        tent = np.maximum(0, 1 - np.abs(np.arange(low, high) + 0.5 - center) * (1 / support))
        run = np.floor(np.cumsum(tent * (WEIGHT_ONE / tent.sum())) + 0.5).astype(np.int64)
        run[-1] = WEIGHT_ONE
        matrix[i, low:high] = np.diff(run, prepend=0)
    return matrix


def resize(
    pixels: NDArray[np.uint8],
    view: tuple[float, float, float, float],
    clip: tuple[int, int, int, int],
    size: tuple[int, int],
    *,
    flip: bool = False,
) -> NDArray[np.uint8]:
    """Twin of the resampler: `pixels` (HWC) seen through `view` (x0, y0, x1, y1), as `size` (height, width)."""
    down = weights((view[1], view[3]), size[0], (clip[1], clip[3]))
    across = weights((view[0], view[2]), size[1], (clip[0], clip[2]))
    if flip:
        across = across[::-1]
    source = pixels[: clip[3], : clip[2]].astype(np.int64)
    middle = (np.tensordot(down, source, axes=(1, 0)) + 128) >> 8
    final: NDArray[np.int64] = (np.tensordot(middle, across, axes=(1, 1)).transpose(0, 2, 1) + (1 << 19)) >> 20
    return final.clip(0, 255).astype(np.uint8)
